"""A trace of a run, step by step, with a digest that is equal only for equal runs.

The digest covers every step; the steps themselves are kept up to a bound, beyond which the oldest are
dropped.
"""

from __future__ import annotations

import hashlib
import struct
from collections import deque

import msgspec

from quoracy.membership.machine import Address, Effect, SendPacket, SendStream
from quoracy.membership.simulator.world import World

__all__ = ["Step", "Trace"]


class Step(msgspec.Struct, frozen=True):
    """One thing that happened: what is start, tick, packet, stream, unreachable, send or tell.

    address: the member that acts, sends or reports.  other: the other side, if there is one.
    """

    time: float
    what: str
    address: Address
    other: Address = ""
    data: bytes = b""


class Trace:
    """Records a run from now on.

    >>> world = World(seed=1)
    >>> trace = Trace(world)
    >>> world.run(until=1.0)
    >>> trace.count, list(trace.steps)
    (0, [])
    """

    def __init__(self, world: World, *, steps_max: int = 10_000) -> None:
        self.steps: deque[Step] = deque(maxlen=steps_max)
        self.count = 0
        self._digest = hashlib.blake2b(digest_size=16)
        world.on_step = self._step
        world.on_effect = self._effect

    @property
    def digest(self) -> str:
        """A hash of all steps: equal for two runs that took the same steps."""
        return self._digest.hexdigest()

    def _step(self, time: float, what: str, address: Address, other: Address, data: bytes) -> None:
        self.count += 1
        self.steps.append(Step(time, what, address, other, data))
        self._digest.update(struct.pack("<d", time))
        for part in (what.encode(), address.encode(), other.encode(), data):
            self._digest.update(len(part).to_bytes(4, "little"))
            self._digest.update(part)

    def _effect(self, time: float, address: Address, effect: Effect) -> None:
        if isinstance(effect, SendPacket):
            self._step(time, "send", address, effect.to, effect.data)
        elif isinstance(effect, SendStream):
            self._step(time, "send stream", address, effect.to, effect.data)
        else:
            self._step(time, "tell", address, "", repr(effect.event).encode())
