"""A SWIM machine that says when it hears somebody, and when its goodbye has gone out."""

from __future__ import annotations

from collections.abc import Callable

from quoracy.membership.machine import Address, Effect
from quoracy.membership.swim import Swim

__all__ = ["AudibleSwim"]


class AudibleSwim(Swim):
    """Decides nothing more than `Swim` does.

    on_packet: a packet that made sense came from there.  on_left: the goodbye went out, called once.
    """

    on_packet: Callable[[Address, float], None] | None = None
    on_left: Callable[[], None] | None = None

    def tick(self, now: float) -> list[Effect]:
        effects = super().tick(now)
        self._look_whether_left()
        return effects

    def receive(self, data: bytes, sender: Address, now: float) -> list[Effect]:
        effects = super().receive(data, sender, now)
        if self.on_packet is not None:
            self.on_packet(sender, now)
        self._look_whether_left()
        return effects

    def leave(self, now: float) -> list[Effect]:
        effects = super().leave(now)
        self._look_whether_left()
        return effects

    def _look_whether_left(self) -> None:
        if self.on_left is not None and self.has_left:
            on_left, self.on_left = self.on_left, None
            on_left()
