"""The interface of every core in this package: a machine that takes the time and returns effects.

A machine owns no socket, no timer and no clock.  Its driver (the asyncio runtime or the simulator)
passes on what arrives, calls `tick` when `next_due` has come, and carries out the effects that each
call returns, in their order.

Invariants
    * The same calls with the same `now` and the same `random.Random` give the same effects.
    * `now` is a monotonic reading in seconds and never goes backwards between calls.
    * A call that raises has changed nothing.  For what came from outside that is `ProtocolError`.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias, runtime_checkable

import msgspec

__all__ = ["Address", "Effect", "Leaver", "Machine", "SendPacket", "SendStream", "Tell"]

# Where a message goes: "host:port" (or "[v6]:port") on a network, a name in a simulation.
Address: TypeAlias = str


class SendPacket(msgspec.Struct, frozen=True, gc=False):
    """Send one datagram.  It may be lost, doubled, or overtaken."""

    to: Address
    data: bytes


class SendStream(msgspec.Struct, frozen=True, gc=False):
    """Send one message of any size, reliably.  If it cannot be delivered, call `unreachable(to)`."""

    to: Address
    data: bytes


class Tell(msgspec.Struct, frozen=True):
    """An event for the owner of the machine; its type depends on the kind of machine."""

    event: object


Effect: TypeAlias = SendPacket | SendStream | Tell


class Machine(Protocol):
    """One participant of a protocol.

    next_due: when `tick` must be called at the latest; `math.inf` for never.  It may change with every
    call, in either direction.
    """

    next_due: float

    def start(self, now: float) -> list[Effect]:
        """Begin.  Nothing else is called before."""
        ...

    def tick(self, now: float) -> list[Effect]:
        """Do what is due.  Calling it too early does nothing."""
        ...

    def receive(self, data: bytes, sender: Address, now: float) -> list[Effect]:
        """A datagram arrived.  Raises `ProtocolError` if it makes no sense."""
        ...

    def receive_stream(self, data: bytes, sender: Address, now: float) -> list[Effect]:
        """A reliable message arrived.  Raises `ProtocolError` if it makes no sense."""
        ...

    def unreachable(self, to: Address, now: float) -> list[Effect]:
        """A reliable message could not be delivered."""
        ...


@runtime_checkable
class Leaver(Protocol):
    """A machine that can say goodbye."""

    @property
    def has_left(self) -> bool:
        """The goodbye is out."""
        ...

    def leave(self, now: float) -> list[Effect]:
        """Say it.  Goes on until `has_left`."""
        ...
