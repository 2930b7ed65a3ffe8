"""What a machine wants done, in order, until the call that caused it returns."""

from __future__ import annotations

from quoracy.membership.machine import Address, Effect, SendPacket, SendStream, Tell
from quoracy.membership.model import SwimEvent

__all__ = ["Outbox"]


class Outbox:
    """Effects of one call.

    >>> out = Outbox()
    >>> out.packet("h:1", b"ping")
    >>> len(out.take()), len(out.take())
    (1, 0)
    """

    __slots__ = ("_effects",)

    def __init__(self) -> None:
        self._effects: list[Effect] = []

    def packet(self, to: Address, data: bytes) -> None:
        self._effects.append(SendPacket(to, data))

    def stream(self, to: Address, data: bytes) -> None:
        self._effects.append(SendStream(to, data))

    def tell(self, event: SwimEvent) -> None:
        self._effects.append(Tell(event))

    def take(self) -> list[Effect]:
        effects = self._effects
        self._effects = []  # even if it was empty: what the caller adds to its list is not ours
        return effects
