"""A few peers that gossip heartbeats over a bad network, in simulated time: same seed, same run."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable

from quoracy.membership.detectors import (
    HeartbeatChange,
    HeartbeatChangeKind,
    HeartbeatGossip,
    HeartbeatSettings,
)
from quoracy.membership.machine import Address, Effect, SendPacket, Tell

__all__ = ["Network"]


class Network:
    """Runs peers, loses and delays their packets, and writes down what they tell."""

    def __init__(self, seed: str, settings: HeartbeatSettings, *, loss: float = 0.0) -> None:
        self.rng = random.Random(seed)
        self.settings = settings
        self.loss = loss
        self.now = 0.0
        self.peers: dict[Address, HeartbeatGossip] = {}
        self.told: list[tuple[float, Address, HeartbeatChange]] = []
        self.largest_packet = 0
        self.is_cut: Callable[[Address, Address], bool] = lambda sender, to: False
        self._packets: list[tuple[float, int, Address, Address, bytes]] = []
        self._numbers = itertools.count()

    def start(self, address: Address, seeds: list[Address], generation: int = 0) -> HeartbeatGossip:
        peer = HeartbeatGossip(
            address,
            rng=random.Random(self.rng.random()),
            seeds=seeds,
            settings=self.settings,
            generation=generation,
        )
        self.peers[address] = peer
        self._carry_out(address, peer.start(self.now))
        return peer

    def crash(self, address: Address) -> None:
        del self.peers[address]

    def run(self, until: float) -> None:
        while True:
            packet_due = self._packets[0][0] if self._packets else until
            address = min(self.peers, key=lambda each: self.peers[each].next_due)
            due = min(packet_due, self.peers[address].next_due)
            if due >= until:
                break
            self.now = max(self.now, due)
            if packet_due <= due:
                _, _, sender, to, data = heapq.heappop(self._packets)
                if to in self.peers:
                    self._carry_out(to, self.peers[to].receive(data, sender, self.now))
            else:
                self._carry_out(address, self.peers[address].tick(self.now))
        self.now = until

    def told_of(self, peer: Address, kind: HeartbeatChangeKind) -> dict[Address, float]:
        """Who was told this of a peer, and when last."""
        return {
            who: when for when, who, change in self.told if (change.peer, change.kind) == (peer, kind)
        }

    def _carry_out(self, address: Address, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Tell):
                assert isinstance(effect.event, HeartbeatChange)
                self.told.append((self.now, address, effect.event))
            else:
                assert isinstance(effect, SendPacket)
                self._send(address, effect)

    def _send(self, sender: Address, packet: SendPacket) -> None:
        self.largest_packet = max(self.largest_packet, len(packet.data))
        if self.rng.random() < self.loss or self.is_cut(sender, packet.to):
            return
        arrives = self.now + self.rng.expovariate(20.0)
        heapq.heappush(self._packets, (arrives, next(self._numbers), sender, packet.to, packet.data))
