"""Until when a Redlock is held: arithmetic on which servers said yes, and on when they were asked.

Each server keeps the key for the time to live from the moment it carries out the request.  That moment
is not known here, but it is not before the request was sent.  So a server that said yes keeps the key
at least until *asked + ttl - drift*, and the lock is held as long as a majority keeps it: until the
latest moment that a majority of these reaches.  That is the published algorithm's
`ttl - elapsed - drift`, and it goes on being right when only some servers confirm an extension, or some
say that the key is gone.

Invariants
    * No IO and no clock: every method takes the time; the same calls give the same deadline.
    * A server that was silent changes nothing: it may have done what it was asked, and does not count.
    * A server that does not have the key any more never counts again: a value is set once, so it
      cannot come back, however late an older yes arrives.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

__all__ = ["DRIFT_FACTOR", "Answer", "Terms", "Validity", "Verdict", "explain"]

# The share of the time to live by which clocks may run apart, and a constant for the millisecond
# in which Redis measures expiry, as published: https://redis.io/docs/latest/develop/clients/patterns/
# distributed-locks/
DRIFT_FACTOR = 0.01
_DRIFT_MS = 2


class Verdict(Enum):
    """How one server answered."""

    YES = "said yes"
    NO = (
        "said no"  # to set: the key is there; to extend or delete: it has another value or is not there
    )
    SILENT = "did not answer"  # what was asked may have happened
    FAILED = "answered with an error"  # it did not happen, and asking again will not help by itself


@dataclass(frozen=True, slots=True)
class Answer:
    """One server's verdict, and why if it is not a plain yes or no."""

    verdict: Verdict
    why: str = ""


@dataclass(frozen=True, slots=True)
class Terms:
    """What is asked for: the number of servers, the time to live, and the drift of clocks."""

    servers_count: int
    ttl_ms: int
    drift_factor: float = DRIFT_FACTOR

    @property
    def quorum(self) -> int:
        """How many servers are a majority: any two of that size have one in common."""
        return self.servers_count // 2 + 1

    @property
    def ttl_s(self) -> float:
        return self.ttl_ms / 1000

    @property
    def drift_s(self) -> float:
        return (self.ttl_ms * self.drift_factor + _DRIFT_MS) / 1000

    def kept_until(self, asked_at: float) -> float:
        """Until when a server keeps the key for certain if it says yes to what was sent then."""
        return asked_at + self.ttl_s - self.drift_s


class Validity:
    """Until when each server keeps one key with one value, and so until when the lock is held.

    >>> validity = Validity(Terms(servers_count=3, ttl_ms=10_000))
    >>> yes, silent = Answer(Verdict.YES), Answer(Verdict.SILENT)
    >>> validity.asked([yes, yes, silent], at=100.0)
    True
    >>> round(validity.deadline, 3)  # 100 + 10 - (10 * 0.01 + 0.002)
    109.898
    >>> validity.asked([yes, silent, silent], at=105.0)  # an extension that only one server confirmed
    False
    >>> round(validity.deadline, 3)
    109.898
    """

    __slots__ = ("_gone", "_kept_until", "ends_at", "terms")

    def __init__(self, terms: Terms, *, ends_at: float = math.inf) -> None:
        """`ends_at` is the moment at which it is over in any case, however often it is extended."""
        self.terms = terms
        self.ends_at = ends_at
        self._kept_until = [-math.inf] * terms.servers_count
        self._gone = [False] * terms.servers_count

    @property
    def deadline(self) -> float:
        """From when a majority cannot be counted on; minus infinity if it cannot be already."""
        return min(self._majority_until(), self.ends_at)

    @property
    def gone_count(self) -> int:
        """How many servers have said that they do not have the key."""
        return sum(self._gone)

    def asked(self, answers: Sequence[Answer], *, at: float) -> bool:
        """Take in every server's answer to a request, sent at `at`, to set or to extend the key.

        True: a majority keeps it for as long as that request asked for.
        """
        assert len(answers) == self.terms.servers_count
        until = self.terms.kept_until(at)
        for index, answer in enumerate(answers):
            if answer.verdict is Verdict.YES and not self._gone[index]:
                self._kept_until[index] = max(self._kept_until[index], until)
        self.released(answers)
        return self._majority_until() >= until

    def released(self, answers: Sequence[Answer]) -> None:
        """Take in every server's answer to a request to delete the key; no: it was not there before."""
        for index, answer in enumerate(answers):
            if answer.verdict is Verdict.NO:
                self._gone[index] = True
                self._kept_until[index] = -math.inf

    def _majority_until(self) -> float:
        return sorted(self._kept_until, reverse=True)[self.terms.quorum - 1]

    def remaining(self, now: float) -> float:
        """For how long the lock is still held; 0 if it is not."""
        return max(0.0, self.deadline - now)


def explain(names: Sequence[str], answers: Sequence[Answer]) -> str:
    """All answers in words: `1 of 3 servers said yes, 1 said no, a:6379 did not answer (...)`."""
    yes, no = (
        sum(answer.verdict is verdict for answer in answers) for verdict in (Verdict.YES, Verdict.NO)
    )
    others = [
        f"{name} {answer.verdict.value} ({answer.why})"
        for name, answer in zip(names, answers, strict=True)
        if answer.verdict in (Verdict.SILENT, Verdict.FAILED)
    ]
    return ", ".join([f"{yes} of {len(answers)} servers said yes", f"{no} said no", *others])
