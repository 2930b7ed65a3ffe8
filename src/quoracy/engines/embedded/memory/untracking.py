"""Tuples of versions that the garbage collector need not look at: see `_untracked.c`.

Where that was not compiled they are left to it, as all tuples are: it looks at each once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quoracy.store.model import KeyValue

__all__ = ["untracked"]

try:
    from quoracy.engines.embedded.memory._untracked import untracked
except ImportError:

    def untracked(versions: tuple[KeyValue, ...], /) -> tuple[KeyValue, ...]:
        return versions
