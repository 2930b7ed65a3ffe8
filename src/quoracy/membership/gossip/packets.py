"""How messages become effects: a few datagrams, or one reliable message for more.

Invariants
    * No datagram is over `packet_bytes_max`, no reliable message over `stream_bytes_max`.
    * A delta that fits no datagram is cut only where the resulting replica is one that the owner had.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Sequence

from quoracy.membership.gossip.messages import Delta, Digest, Message, News, encode
from quoracy.membership.gossip.model import GossipStatistics
from quoracy.membership.gossip.replica import pieces
from quoracy.membership.gossip.settings import GossipSettings
from quoracy.membership.machine import Address, Effect, SendPacket, SendStream

__all__ = ["FRAME_BYTES", "Packets"]

# What a message adds to the items in it: tag, and lengths of arrays.
FRAME_BYTES = 24
_GONE_MAX = 4


class Packets:
    """Turns messages into effects, and counts them."""

    __slots__ = ("_counters", "_settings")

    def __init__(self, settings: GossipSettings, counters: GossipStatistics) -> None:
        self._settings = settings
        self._counters = counters

    def packet(self, to: Address, message: Message) -> list[Effect]:
        """A message that is known to fit into a datagram."""
        data = encode(message)
        assert len(data) <= self._settings.packet_bytes_max
        self._counters.packets += 1
        self._counters.bytes += len(data)
        return [SendPacket(to, data)]

    def message(self, to: Address, message: Message) -> list[Effect]:
        """As a datagram if it fits into one."""
        data = encode(message)
        if len(data) <= self._settings.packet_bytes_max:
            return self.packet(to, message)
        self._counters.streams += 1
        self._counters.bytes += len(data)
        return [SendStream(to, data)]

    def news(
        self,
        to: Address,
        deltas: list[Delta],
        *,
        wants: list[Digest],
        gone: list[Digest],
        rng: random.Random,
    ) -> list[Effect]:
        """As few messages as possible; what does not fit is left for another round."""
        settings = self._settings
        room = settings.packet_bytes_max - FRAME_BYTES
        small: list[Delta] = []
        large: list[Delta] = []
        for delta in deltas:
            parts = pieces(delta, room)
            if parts is None:
                large.append(delta)
            else:
                small += parts
        if sum(len(encode(delta)) for delta in small) > settings.stream_above_bytes:
            small, large = [], deltas
        effects: list[Effect] = []
        asks = _fitting(wants, room)
        rest = rng.sample(gone, min(len(gone), _GONE_MAX))
        for batch in _filled(small, room) or ([[]] if asks or rest else []):
            effects += self._with_asks(to, batch, asks, rest)
            asks, rest = [], []
        if large:
            rng.shuffle(large)
            batch = next(iter(_filled(large, settings.stream_bytes_max - FRAME_BYTES)))
            effects += self.message(to, News(batch))
        return effects

    def _with_asks(
        self, to: Address, deltas: list[Delta], wants: list[Digest], gone: list[Digest]
    ) -> list[Effect]:
        whole = News(deltas, wants, [], gone)
        if len(encode(whole)) <= self._settings.packet_bytes_max:
            return self.packet(to, whole)
        parts = (News(deltas), News([], wants), News([], [], [], gone))
        return [effect for part in parts if part != News() for effect in self.packet(to, part)]


def _fitting(digests: Sequence[Digest], bytes_max: int) -> list[Digest]:
    """The first digests that fit."""
    sizes = itertools.accumulate(len(encode(digest)) for digest in digests)
    return list(digests[: sum(size <= bytes_max for size in sizes)])


def _filled(deltas: Iterable[Delta], bytes_max: int) -> list[list[Delta]]:
    """Batches of deltas, each as large as allowed."""
    batches: list[list[Delta]] = []
    room = 0
    for delta in deltas:
        size = len(encode(delta))
        if not batches or size > room:
            batches.append([])
            room = bytes_max
        batches[-1].append(delta)
        room -= size
    return batches
