"""Blocking work off the event loop that is never left behind half done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

__all__ = ["off_loop"]

T = TypeVar("T")


async def off_loop(work: Callable[[], T], *, undo: Callable[[T], object] | None = None) -> T:
    """Run `work` in a thread, and return only when it has ended, cancelled or not.

    A thread cannot be stopped, and what it uses must not be closed under its hands: SQLite would take
    the process down.  When the caller was cancelled meanwhile, `undo` gets what the work made.
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
