"""What Quoracy runs on: uvloop where there is one, and a garbage collector that is kept short.

Nearly all there is in a server by the hundred thousand (versions, what a revision wrote, records,
znodes, short histories) is nothing to Python's garbage collector: see `record`, `pasts`, `untracking`
and `native`.  What is left to it:

    the young    so many new objects: where 5,000 are there to be looked at, 1 to 3 ms of the loop, on a
                 busy machine up to 12.  (20,000 took 8 to 30.)
    the middle   what survived two collections of the young.  Soon, because a container is looked at as
                 a whole, and the children of one znode, say, are few yet: later it was 50 ms.
    everything   when what survived has grown by a quarter, and after 20,000,000 more objects than
                 went; but for what was there when all was loaded, which is frozen

So a cycle that nobody holds any more goes with one of these, unless it is one of frozen objects: of
those there are never more than at the start, since nothing is frozen later.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

__all__ = ["all_loaded", "run"]

_T = TypeVar("_T")

# When the collector comes; see above.
_YOUNG, _MIDDLE, _EVERYTHING = 5_000, 2, 2_000

# How long a thread waits for the interpreter lock before it asks for it.  The one that waits is the
# journal's worker, after each call of SQLite, and what it has in hand is short.
_SWITCH_S = 0.0005


def run(main: Coroutine[Any, Any, _T]) -> _T:
    """Like asyncio.run.

    A request leaves no cycles behind, but Python looks for them after every 700 objects, and now and
    then through all there are.  The modules that were loaded by now stay out of that.
    """
    gc.freeze()
    gc.set_threshold(_YOUNG, _MIDDLE, _EVERYTHING)
    sys.setswitchinterval(_SWITCH_S)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(main)


def all_loaded() -> None:
    """The store is in memory: it, too, is left out of what the collector looks through.  Once."""
    gc.freeze()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:  # Windows
        return asyncio.new_event_loop
    return uvloop.new_event_loop
