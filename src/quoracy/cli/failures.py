"""Every expected failure of a command is one line on stderr and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from quoracy.cli.exits import Exit
from quoracy.errors import Indeterminate, InvalidRequest, LeaseLost, LeaseNotFound, QuoracyError

__all__ = ["carry_out", "fail", "while_read"]


def carry_out(action: Callable[[], object]) -> int:
    """The exit code: what was returned, if it is a number."""
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
    """What it returns; whoever reads our output and has seen enough ends it, which is no error."""
    try:
        outcome = action()
        sys.stdout.flush()
    except BrokenPipeError:
        # What is buffered must not fail again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.BROKEN_PIPE
    return outcome


def fail(message: str, code: Exit) -> int:
    # One line, whatever the message quotes.
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
