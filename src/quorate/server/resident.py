"""Memory that only starting needed: see docs/decisions/0015.

Most of what a process that has just started counts as resident is code that ran once.
"""

from __future__ import annotations

__all__ = ["give_back_what_starting_took"]


def give_back_what_starting_took() -> int:
    """How many bytes of code this process no longer counts as its own; 0 where nothing was compiled.

    It takes about a millisecond.  Code that is used again is found in the system's cache of files.
    """
    try:
        from quorate.server._resident import give_back
    except ImportError:
        return 0
    return give_back()
