"""What the exit codes mean: one list for every verb, shown by `quoracy --help`."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["EXPLAINED", "Exit"]


class Exit(IntEnum):
    DONE = 0
    FAILED = 1
    MISUSED = 2
    NO = 3
    UNKNOWN = 4
    LOST = 5
    TIMED_OUT = 124
    NO_COMMAND = 127
    INTERRUPTED = 130
    BROKEN_PIPE = 141


EXPLAINED = (
    (Exit.DONE, "done"),
    (Exit.FAILED, "it could not be done: no such file, no server there, refused"),
    (Exit.MISUSED, "it was asked for wrongly"),
    (Exit.NO, "the answer is no: not found, compare failed, lock not got"),
    (Exit.UNKNOWN, "a write got no answer: it may have been done, or not"),
    (Exit.LOST, "what was held (a lock, leadership) was lost"),
    (Exit.TIMED_OUT, "no answer in time, and nothing was changed"),
    (Exit.NO_COMMAND, "the command to run does not exist"),
    (Exit.INTERRUPTED, "interrupted by Ctrl-C"),
)
