"""A wait for the front of a queue that was sent to the server: told with its answer.

Whoever is told holds a lock from then on, and mostly in a process that has done nothing for a while,
where all that is done first takes ten times as long as it does in a busy one.  So there is one jump
from the answer to the future, compiled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from quoracy.remote.calls import Called
from quoracy.remote.fast_messages import put_revision

__all__ = ["FirstWait"]


class FirstWait(Called):
    """`told` gets True: it is the first; False: who wants to know must ask."""

    __slots__ = ("_on_error", "_told")

    def __init__(
        self, told: asyncio.Future[bool], on_error: Callable[[BaseException | None], None]
    ) -> None:
        super().__init__()
        self._told, self._on_error = told, on_error

    def answered(self, answer: bytes | None, error: BaseException | None) -> None:
        # An answer that is a header and nothing else: it is the first, at that revision.
        is_first = answer is not None and put_revision(answer) is not None
        if not self._told.done():
            self._told.set_result(is_first)
        if error is not None:
            self._on_error(error)
