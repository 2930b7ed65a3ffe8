"""The gossip machine: the small state of each participant spreads to all, without a coordinator.

Each participant owns a map of keys to bytes, which only it writes.  Others hold replicas of it, each of
which is what the owner had at some version.  State spreads as rumours, by comparing, or both.

An exchange goes only as far as there is a difference:

    Sync     ->              the hash of all I know; no answer if yours is the same
             <-  Parts       mine differs; the hashes of its parts
    Digests  ->              of the parts that differ, I know these owners up to these versions
             <-  News        what you lack, and what I want
    News     ->              what you want

Each message is answered on its own and nothing is remembered in between, so any of them may be lost,
duplicated or late.

Invariants
    * The copy of an owner's map only becomes newer, and is always a state that this owner once had.
    * No message changes our own map.  If a peer knows a later version of us than we do, our generation
      grows beyond it: we were restarted with an old one, or another participant has our name.
    * What is sent unasked is one packet for each round and peer, whatever the number of owners.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping
from types import MappingProxyType

import msgspec

from quoracy.errors import InvalidRequest
from quoracy.membership.gossip.messages import (
    COUNT_MAX,
    PART_BYTES,
    Digest,
    Digests,
    Message,
    News,
    Parts,
    Sync,
    decode,
    encode,
)
from quoracy.membership.gossip.model import GossipStatistics, StateChanged
from quoracy.membership.gossip.packets import FRAME_BYTES, Packets
from quoracy.membership.gossip.settings import GossipMode, GossipSettings
from quoracy.membership.gossip.state import State
from quoracy.membership.machine import Address, Effect, Tell
from quoracy.membership.settings import NAME_BYTES_MAX

__all__ = ["Gossip"]

# With so few owners their digests are no larger than the hashes of parts, which are left out.
_FEW_OWNERS = 24
_DATAGRAM_BYTES_MAX = 65_535
_DEFAULTS = GossipSettings()


class Gossip:
    """One participant: a `Machine`.  Reports `StateChanged` for the keys of others.

    generation: larger at each start of this participant than at any start before, such as the time.

    >>> a, b = (Gossip(name, generation=1, rng=random.Random(1)) for name in "ab")
    >>> effects = a.start(0.0) + b.start(0.0)
    >>> a.set_peers(["b"])
    >>> packet, *others = a.set("colour", b"red", now=0.0)
    >>> b.receive(packet.data, "a", now=0.0)[0].event.value
    b'red'
    >>> b.get("a", "colour")
    b'red'
    """

    def __init__(
        self,
        name: str,
        *,
        generation: int,
        rng: random.Random,
        settings: GossipSettings = _DEFAULTS,
        peers: Iterable[Address] = (),
    ) -> None:
        if not 0 < len(name.encode()) <= NAME_BYTES_MAX:
            raise InvalidRequest(f"a name has 1 to {NAME_BYTES_MAX} bytes, not {len(name.encode())}")
        if not 0 < generation < COUNT_MAX:
            raise InvalidRequest(f"a generation is between 1 and 2**62, not {generation}")
        self.name = name
        self.settings = settings
        self.next_due = math.inf
        self._rng = rng
        self._counters = GossipStatistics()
        self._state = State(name, generation=generation, settings=settings, counters=self._counters)
        self._packets = Packets(settings, self._counters)
        self._peers: tuple[Address, ...] = ()
        self._now = -math.inf
        self._exchange_due = self._push_due = self._clean_due = math.inf
        self._pushed_at = -math.inf
        # Owner -> the version that was requested a moment ago, so as not to ask several peers for it.
        self._asked: dict[str, tuple[int, int]] = {}
        self._asked_until = -math.inf
        self.set_peers(peers)

    # -- what is known

    @property
    def generation(self) -> int:
        return self._state.mine.generation

    @property
    def peers(self) -> tuple[Address, ...]:
        return self._peers

    @property
    def owners(self) -> frozenset[str]:
        """All participants of which something is known, even if it is an empty map."""
        return frozenset(self._state.table.replicas)

    def get(self, owner: str, key: str) -> bytes | None:
        """
        >>> Gossip("a", generation=1, rng=random.Random(1)).get("b", "colour") is None
        True
        """
        replica = self._state.table.get(owner)
        return None if replica is None else replica.value(key)

    def of(self, owner: str) -> Mapping[str, bytes]:
        """All keys of an owner, as they are now; empty if the owner is not known."""
        replica = self._state.table.get(owner)
        return MappingProxyType({} if replica is None else dict(replica.live()))

    def version_of(self, owner: str) -> tuple[int, int]:
        """Generation and version of the copy of an owner's map; (0, 0) if the owner is not known."""
        digest = self._state.table.digest(owner)
        return digest.generation, digest.version

    @property
    def root(self) -> int:
        """A hash of all that is known; the same for two participants that know the same."""
        return self._state.table.root

    def statistics(self) -> GossipStatistics:
        return msgspec.structs.replace(
            self._counters,
            owners_count=len(self._state.table.replicas),
            forgotten_count=self._state.table.forgotten_count,
            hot_count=len(self._state.rumours),
        )

    # -- what the owner of this machine does

    def set_peers(self, addresses: Iterable[Address]) -> None:
        """The peers to contact from now on: all others that are alive.  Any sender is answered.

        A tuple is kept as it is, so that thousands in one process can share it.  `next_due` may change.
        """
        before = self._peers
        self._peers = addresses if isinstance(addresses, tuple) else tuple(dict.fromkeys(addresses))
        self._state.participants_count = len(self._peers) + 1
        if not before and self._exchange_due < math.inf:
            self._exchange_due = self._now  # the first peers: do not wait for the next round
        self._renew_due()

    def set(self, key: str, value: bytes, now: float) -> list[Effect]:
        """Write a key of ours.  Raises `InvalidRequest`, and changes nothing, if it is over a bound."""
        self._state.write(key, value, now)
        return self._after_write(now)

    def delete(self, key: str, now: float) -> list[Effect]:
        """Delete a key of ours, if it is there."""
        self._state.write(key, None, now)
        return self._after_write(now)

    def forget(self, owner: str, now: float) -> list[Effect]:
        """Drop the map of an owner that is gone for good.

        News about its generation is ignored for `forget_s`.  If it lives after all, it learns of this
        from us and begins another generation.
        """
        changes = self._state.forget(owner, now)
        self._saw(now)
        return _told(changes)

    # -- Machine

    def start(self, now: float) -> list[Effect]:
        if self.settings.mode.compares:
            # Participants that start together must not exchange in step.
            self._exchange_due = now + self._rng.random() * self.settings.exchange_interval_s
        self._saw(now)
        return []

    def tick(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        if now >= self._clean_due:
            self._clean_due = math.inf
            self._state.clean(now)
        if now >= self._push_due:
            self._push_due, self._pushed_at = math.inf, now
            effects += self._push()
        if now >= self._exchange_due:
            self._exchange_due = now + self.settings.exchange_interval_s
            effects += self._begin_exchange()
        self._saw(now)
        return effects

    def receive(self, data: bytes, sender: Address, now: float) -> list[Effect]:
        return self._receive(decode(data, bytes_max=_DATAGRAM_BYTES_MAX), sender, now)

    def receive_stream(self, data: bytes, sender: Address, now: float) -> list[Effect]:
        return self._receive(decode(data, bytes_max=self.settings.stream_bytes_max), sender, now)

    def unreachable(self, to: Address, now: float) -> list[Effect]:
        """Nothing to do: a later round goes to another peer."""
        del to
        self._saw(now)
        return []

    # -- exchanges

    def _begin_exchange(self) -> list[Effect]:
        if not self._peers:
            return []
        self._counters.exchanges += 1
        return self._packets.packet(self._rng.choice(self._peers), Sync(self.root))

    def _receive(self, message: Message, sender: Address, now: float) -> list[Effect]:
        match message:
            case Sync(root):
                effects = self._compare(root, sender)
            case Parts(hashes):
                effects = self._send_digests(hashes, sender)
            case Digests():
                effects = self._answer(message, sender, now)
            case News():
                effects = self._learn(message, sender, now)
        self._saw(now)
        return effects

    def _compare(self, root: int, sender: Address) -> list[Effect]:
        if root == self.root:
            return []
        self._counters.differences += 1
        table = self._state.table
        few = len(table.replicas) <= _FEW_OWNERS
        return self._packets.packet(sender, Parts(table.sums(1 if few else self.settings.buckets)))

    def _send_digests(self, hashes: bytes, sender: Address) -> list[Effect]:
        """Of as many differing parts as fit into one packet; the others are for later rounds."""
        table = self._state.table
        count = len(hashes) // PART_BYTES
        if count == 1 and len(table.replicas) > _FEW_OWNERS:
            # The peer knows few owners and sent no parts; what we know does not fit into one packet.
            count = self.settings.buckets
            hashes = bytes(PART_BYTES * count)
        # The hashes of parts are short: if all are equal though the roots differ, one part is compared.
        parts = table.differing(hashes) or [self._rng.randrange(count)]
        self._rng.shuffle(parts)
        chosen: list[int] = []
        digests: list[Digest] = []
        room = self.settings.packet_bytes_max - FRAME_BYTES
        for part in parts:
            more = table.digests(parts_count=count, parts=[part])
            room -= 5 + sum(len(encode(digest)) for digest in more)
            if room < 0 and chosen:
                break
            chosen.append(part)
            digests += more
        one_way = self.settings.mode is GossipMode.PULL
        return self._packets.message(sender, Digests(one_way, count, chosen, digests))

    def _answer(self, message: Digests, sender: Address, now: float) -> list[Effect]:
        for digest in message.digests:
            self._state.defend(digest, now)
        theirs = {digest.owner: digest for digest in message.digests}
        ours = self._state.table.in_parts(parts_count=message.parts_count, parts=message.parts)
        beyond = (
            self._state.beyond(theirs.get(replica.owner, Digest(replica.owner, 0, 0)))
            for replica in ours
        )
        return self._packets.news(
            sender,
            [delta for delta in beyond if delta is not None],
            wants=[] if message.one_way else self._state.lacking(theirs.values()),
            gone=self._state.gone(theirs.values()),
            rng=self._rng,
        )

    def _learn(self, news: News, sender: Address, now: float) -> list[Effect]:
        claims = [Digest(delta.owner, delta.generation, delta.upto) for delta in news.deltas]
        for claim in (*claims, *news.hints):
            self._state.defend(claim, now)
        for claim in news.gone:
            self._state.defend(claim, now, is_gone=True)
        told: list[Effect] = []
        promised = list(news.hints)
        for delta, claim in zip(news.deltas, claims, strict=True):
            changes = self._state.merge(delta, now)
            if changes is None:
                promised.append(claim)
            else:
                told += _told(changes)
        wants = [want for want in self._state.lacking(promised) if self._may_ask(want, promised, now)]
        self._counters.asked += len(wants)
        beyond = map(self._state.beyond, news.wants)
        return told + self._packets.news(
            sender,
            [delta for delta in beyond if delta is not None],
            wants=wants,
            gone=self._state.gone((*claims, *news.hints)),
            rng=self._rng,
        )

    def _may_ask(self, want: Digest, promised: Iterable[Digest], now: float) -> bool:
        """Whether no peer was asked for this version a moment ago: many may offer it at once."""
        if now >= self._asked_until or len(self._asked) >= self.settings.hot_max:
            self._asked.clear()
            self._asked_until = now + self.settings.push_interval_s
        best = max((d.generation, d.version) for d in promised if d.owner == want.owner)
        if self._asked.get(want.owner, (0, 0)) >= best:
            return False
        self._asked[want.owner] = best
        return True

    # -- rounds

    def _push(self) -> list[Effect]:
        """One packet of news, the same for each of some random peers."""
        rumours = self._state.rumours
        deltas, hints = [], []
        room_max = room = self.settings.packet_bytes_max - FRAME_BYTES
        for owner, generation, after in list(rumours):
            replica = self._state.table.get(owner)
            assert replica is not None
            assert replica.generation == generation
            delta, digest = replica.delta_after(after), replica.digest
            size = len(encode(delta))
            # What does not fit into a packet is only announced: peers ask for it if they lack it.
            is_hint = size > room_max
            size = len(encode(digest)) if is_hint else size
            if size > room:
                break
            room -= size
            if is_hint:
                hints.append(digest)
            else:
                deltas.append(delta)
            rumours.told(owner)
        peers = self._rng.sample(self._peers, min(self.settings.push_fanout, len(self._peers)))
        self._counters.rumours += (len(deltas) + len(hints)) * len(peers)
        news = News(deltas, [], hints)
        return [effect for peer in peers for effect in self._packets.packet(peer, news)]

    def _after_write(self, now: float) -> list[Effect]:
        self._saw(now)
        return self.tick(now)

    def _saw(self, now: float) -> None:
        self._now = max(self._now, now)
        self._renew_due()

    def _renew_due(self) -> None:
        """Plan the next push and the next cleaning, and set `next_due`."""
        if self._push_due == math.inf and self._peers and len(self._state.rumours):
            self._push_due = max(self._now, self._pushed_at + self.settings.push_interval_s)
        if self._clean_due == math.inf and self._state.needs_cleaning:
            soonest = min(self.settings.tombstone_s, self.settings.forget_s)
            self._clean_due = self._now + soonest / 8
        self.next_due = min(self._exchange_due, self._push_due, self._clean_due)


def _told(changes: Iterable[StateChanged]) -> list[Effect]:
    return [Tell(change) for change in changes]
