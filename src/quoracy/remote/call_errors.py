"""How a call can fail without a word from the server, and whether it may have been carried out."""

from __future__ import annotations

from quoracy.errors import QuoracyError, Unavailable

__all__ = ["AnswerUnreadable", "CallLost", "DeadlinePassed", "NotApplied", "NotReached"]


class CallLost(Unavailable):
    """A call got no answer.

    `left`: the request may have reached the server.  If not, nobody can have carried it out, and it can
    be sent again without a second thought.
    """

    def __init__(self, cause: str, *, left: bool) -> None:
        super().__init__(cause)
        self.cause, self.left = cause, left


class DeadlinePassed(CallLost):
    """There was no answer in time."""

    def __init__(self, timeout_s: float, *, left: bool = True) -> None:
        super().__init__(f"no answer within {timeout_s:.3g} s", left=left)


class NotReached(Unavailable):
    """No server could be reached; the message names each and why."""


class AnswerUnreadable(CallLost):
    """There was an answer that is over our limit, or none to this call: asking again does not help."""

    def __init__(self, cause: str) -> None:
        super().__init__(f"the answer cannot be used: {cause}", left=True)


class NotApplied(QuoracyError):
    """The write did not happen, and may be asked for again."""
