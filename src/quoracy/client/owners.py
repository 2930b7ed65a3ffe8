"""Who asks: the task, or whatever it acts for.

A reentrant lock is entered again by its owner.  That is the running task, unless somebody acts for
another: the synchronous face runs each call in a task of its own, for a thread.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

__all__ = ["acting_for", "owner_here"]

acting_for: ContextVar[object | None] = ContextVar("quoracy_acting_for", default=None)


def owner_here() -> object:
    """The owner of what is acquired here and now."""
    return acting_for.get() or asyncio.current_task()
