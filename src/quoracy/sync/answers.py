"""What a plain function answers, for an operation on the loop that wants it at once.

The operation asks in the middle of a turn of the loop, where nobody can wait for another thread.  So
the question ends the operation, as any error of the function would; the answer is found out; and the
operation is begun again.  If it asks the same, the answer is there.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

import msgspec

from quoracy.errors import TimedOut

__all__ = ["Answers"]

A = TypeVar("A")
R = TypeVar("R")

# A value that comes and goes is not asked about again; there is no need to remember more.
_KNOWN_MAX = 8


class _Asked(BaseException):
    """A question without an answer yet.  Nobody but `Answers` is to catch it."""

    def __init__(self, question: object) -> None:
        super().__init__()
        self.question = question


class Answers(Generic[A]):
    """The answers of one function during one operation."""

    def __init__(self, find_out: Callable[[Any], Awaitable[A]]) -> None:
        self._find_out = find_out
        self._known: deque[tuple[object, A]] = deque(maxlen=_KNOWN_MAX)

    async def give(
        self,
        begin: Callable[[Callable[[Any], A], float | None], Awaitable[R]],
        timeout: float | None,
    ) -> R:
        """Begin the operation as often as it has something new to ask, within the time."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        left = timeout
        while True:
            try:
                return await begin(self._answer, left)
            except _Asked as asked:
                question = asked.question
            except TimedOut as late:
                if timeout is None or left == timeout:
                    raise
                raise TimedOut(late.what, timeout_s=timeout) from None
            self._known.append((_form(question), await self._find_out(question)))
            if deadline is not None:
                left = max(0.0, deadline - loop.time())

    def _answer(self, question: object) -> A:
        form = _form(question)
        for known, answer in self._known:
            if known == form:
                return answer
        raise _Asked(question)


def _form(question: object) -> object:
    """What makes two questions the same: how they are stored.  Their own idea of equality may leave
    something out, or may not know itself (NaN).
    """
    try:
        return msgspec.json.encode(question)
    except TypeError:
        return question
