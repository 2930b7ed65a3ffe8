"""A toy machine for the simulator's own tests: it beats to its peers and remembers what it heard."""

from __future__ import annotations

import random
from collections.abc import Sequence

from quoracy.errors import ProtocolError
from quoracy.membership.machine import Address, Effect, SendPacket, SendStream, Tell

__all__ = ["Beats"]


class Beats:
    """Beats to one of its peers every `every_s`, echoes `ping`, and tells of everything it gets."""

    def __init__(
        self, address: Address, peers: Sequence[Address], *, rng: random.Random, every_s: float = 1.0
    ) -> None:
        self.address, self.peers, self.every_s = address, tuple(peers), every_s
        self._rng = rng
        self.next_due = float("inf")
        self.heard: list[tuple[float, bytes, Address]] = []
        self.ticked: list[float] = []
        self.failed: list[tuple[float, Address]] = []
        self.has_left = False

    def start(self, now: float) -> list[Effect]:
        self.next_due = now + self._rng.random() * self.every_s
        return [Tell("started")]

    def tick(self, now: float) -> list[Effect]:
        if now < self.next_due:
            return []
        self.ticked.append(now)
        self.next_due = now + self.every_s
        if not self.peers:
            return []
        return [SendPacket(self._rng.choice(self.peers), b"beat")]

    def receive(self, data: bytes, sender: Address, now: float) -> list[Effect]:
        if data == b"nonsense":
            raise ProtocolError("no")
        self.heard.append((now, data, sender))
        if data == b"ping":
            return [SendPacket(sender, b"pong")]
        return [Tell((data, sender))]

    def receive_stream(self, data: bytes, sender: Address, now: float) -> list[Effect]:
        self.heard.append((now, data, sender))
        return [SendStream(sender, b"stream pong")] if data == b"stream ping" else []

    def unreachable(self, to: Address, now: float) -> list[Effect]:
        self.failed.append((now, to))
        return []

    def leave(self, now: float) -> list[Effect]:
        self.next_due = float("inf")
        self.has_left = True
        return [SendPacket(peer, b"bye") for peer in self.peers]
