"""Machines wired by hand: what one sends the other has at once, until nobody has more to say."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable

from quoracy.membership.gossip import Gossip, GossipSettings, StateChanged
from quoracy.membership.gossip.messages import Message, decode
from quoracy.membership.machine import Address, Effect, SendPacket, SendStream, Tell

__all__ = ["Sent", "Wire", "participant"]


def participant(
    name: str, *, generation: int = 1, settings: GossipSettings | None = None, now: float = 0.0
) -> Gossip:
    """One that has been started and has no peers yet."""
    gossip = Gossip(
        name,
        generation=generation,
        rng=random.Random(name),
        settings=settings or GossipSettings(),
    )
    gossip.start(now)
    return gossip


class Sent:
    """One message that went over the wire."""

    def __init__(self, sender: Address, effect: SendPacket | SendStream) -> None:
        self.sender, self.to, self.data = sender, effect.to, effect.data
        self.is_stream = isinstance(effect, SendStream)

    @property
    def message(self) -> Message:
        return decode(self.data, bytes_max=len(self.data))


class Wire:
    """Carries what they say; addresses are names.  `loses` says what is lost."""

    def __init__(self, *machines: Gossip) -> None:
        self.machines = {machine.name: machine for machine in machines}
        self.sent: list[Sent] = []
        self.told: dict[str, list[StateChanged]] = {name: [] for name in self.machines}
        self.loses: Callable[[Sent], bool] = lambda sent: False
        self.now = 0.0

    def know_each_other(self) -> None:
        for name, machine in self.machines.items():
            machine.set_peers(other for other in self.machines if other != name)

    def carry(self, sender: str, effects: list[Effect]) -> None:
        """Carry out effects, and those that follow."""
        queue = deque((sender, effect) for effect in effects)
        while queue:
            sender, effect = queue.popleft()
            if isinstance(effect, Tell):
                assert isinstance(effect.event, StateChanged)
                self.told[sender].append(effect.event)
                continue
            sent = Sent(sender, effect)
            self.sent.append(sent)
            if effect.to not in self.machines or self.loses(sent):
                continue
            machine = self.machines[effect.to]
            receive = machine.receive_stream if sent.is_stream else machine.receive
            queue.extend((effect.to, answer) for answer in receive(effect.data, sender, self.now))

    def run(self, seconds: float) -> None:
        """Tick whoever is due, in the order of time."""
        until = self.now + seconds
        while (due := min(machine.next_due for machine in self.machines.values())) <= until:
            self.now = max(self.now, due)
            for name, machine in self.machines.items():
                if machine.next_due <= self.now:
                    self.carry(name, machine.tick(self.now))
        self.now = until
