"""Waiting for work that runs outside the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

__all__ = ["called_back", "off_loop"]

T = TypeVar("T")

OnEnd = Callable[[BaseException | None, object], None]


async def off_loop(work: Callable[[], T], *, undo: Callable[[T], object] | None = None) -> T:
    """Run `work` in a thread, and return only when it has ended, cancelled or not.

    A thread cannot be stopped, and what it uses must not be closed while it runs: SQLite would crash
    the process.  If the caller was cancelled meanwhile, `undo` is called with the result of the work.
    """
    working = asyncio.ensure_future(asyncio.to_thread(work))
    cancelled: asyncio.CancelledError | None = None
    while not working.done():
        try:
            await asyncio.shield(working)
        except asyncio.CancelledError as error:
            cancelled = error
    result = working.result()
    if cancelled is not None:
        if undo is not None:
            undo(result)
        raise cancelled
    return result


async def called_back(begin: Callable[[OnEnd], None]) -> object:
    """Begin something that calls back on this loop when it has ended; return the result."""
    answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    def done(error: BaseException | None, result: object) -> None:
        if answer.cancelled():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result)

    begin(done)
    return await answer
