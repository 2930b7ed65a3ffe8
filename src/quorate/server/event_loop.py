"""What Quorate runs on: uvloop where there is one, and a garbage collector that comes less often."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

__all__ = ["run"]

_T = TypeVar("_T")

# How long a thread waits for the interpreter lock before it asks for it.  The one that waits is the
# journal's worker, after each call of SQLite, and what it has in hand is short.
_SWITCH_S = 0.0005


def run(main: Coroutine[Any, Any, _T]) -> _T:
    """Like asyncio.run.

    A request leaves no cycles behind, but Python looks for them after every 700 objects, and now and
    then through all there are, a million znodes say.  What was loaded by now stays out of that.
    """
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    sys.setswitchinterval(_SWITCH_S)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(main)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:  # Windows
        return asyncio.new_event_loop
    return uvloop.new_event_loop
