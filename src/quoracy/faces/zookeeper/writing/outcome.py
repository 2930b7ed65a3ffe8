"""How a write ended, as its client is told."""

from __future__ import annotations

from collections.abc import Callable

from quoracy.store.completion import Reply

__all__ = ["Calls", "OnOutcome", "Outcome"]


class Outcome:
    """What to answer.  A zxid of 0 is that of the moment the answer is sent: nothing was written."""

    __slots__ = ("body", "err", "zxid")

    def __init__(self, err: int, zxid: int, body: bytes) -> None:
        self.err, self.zxid, self.body = err, zxid, body


class OnOutcome:
    """Whoever is told once how a write ended; None if nobody knows.

    (A class and not a function: a method that is handed over is made for that and called by its name.)
    """

    __slots__ = ()

    def settled(self, outcome: Outcome | None) -> None:
        raise NotImplementedError

    def ahead(self, zxid: int, body: bytes) -> Reply | None:
        """It will end so, once that is durable: the reply that may leave in that moment, if any."""
        del zxid, body
        return None


class Calls(OnOutcome):
    """For those who have a function."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[[Outcome | None], object]) -> None:
        self._call = call

    def settled(self, outcome: Outcome | None) -> None:
        self._call(outcome)
