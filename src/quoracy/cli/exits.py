"""Exit codes: one list for every verb, and how a failure becomes one line on stderr and a code.

`quoracy --help` shows the list.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from enum import IntEnum

from quoracy.errors import Indeterminate, InvalidRequest, LeaseLost, LeaseNotFound, QuoracyError

__all__ = ["EXPLAINED", "Exit", "carry_out", "fail", "while_read"]


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
    (Exit.FAILED, "it failed: no such file, no server there, refused"),
    (Exit.MISUSED, "the command line is wrong"),
    (Exit.NO, "the answer is no: not found, compare failed, lock not acquired"),
    (Exit.UNKNOWN, "a write got no answer: it may have been applied, or not"),
    (Exit.LOST, "what was held (a lock, leadership) was lost"),
    (Exit.TIMED_OUT, "no answer in time, and nothing was changed"),
    (Exit.NO_COMMAND, "the command to run does not exist"),
    (Exit.INTERRUPTED, "interrupted by Ctrl-C"),
)


def carry_out(action: Callable[[], object]) -> int:
    """Run the action; its result if that is a number, else the exit code of how it ended."""
    try:
        outcome = action()
    except KeyboardInterrupt:
        return fail("interrupted.", Exit.INTERRUPTED)
    except QuoracyError as error:
        return fail(str(error), _code_of(error))
    except TimeoutError as error:
        return fail(str(error) or "no answer in time.", Exit.TIMED_OUT)
    except OSError as error:
        return fail(f"{error.filename or 'the system'}: {error.strerror or error}.", Exit.FAILED)
    return outcome if isinstance(outcome, int) else Exit.DONE


def while_read(action: Callable[[], object]) -> object:
    """Run the action; a reader that closes the pipe ends it, which is not an error."""
    try:
        outcome = action()
        sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter flushes what is buffered when it exits; that must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.BROKEN_PIPE
    return outcome


def fail(message: str, code: Exit) -> int:
    """Print the message on one line, whatever it quotes."""
    sys.stderr.write(f"quoracy: {' '.join(message.split())}\n")
    return code


def _code_of(error: QuoracyError) -> Exit:
    match error:
        case InvalidRequest():
            return Exit.MISUSED
        case LeaseNotFound():
            return Exit.NO
        case Indeterminate():
            return Exit.UNKNOWN
        case LeaseLost():
            return Exit.LOST
        case _:
            return Exit.FAILED
