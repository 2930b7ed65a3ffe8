"""Docstrings for readers who have no `async`: the same text, with threads in the place of tasks."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

__all__ = ["LEFT_OUT", "adapted", "docstring"]

# Parameters that are not offered: nobody can cancel a thread, so nobody can ask for it.
LEFT_OUT = frozenset({"cancel_on_loss"})

_WORDS = (
    (r"\basync (with|for|def)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\baclosing\b", "closing"),
    (r"\bquoracy\.connect\b", "quoracy.sync.connect"),
    (r"\bmany tasks\b", "many threads"),
    (r"\b(the|a|each|one|another|this) task\b", r"\1 thread"),
    (r"\bcoroutine function\b", "function"),
)
_WIDTH = 96
_SENTENCES = (
    (
        r"A (\w+) that is lost cancels the body, and the block raises `(\w+)`\.",
        (
            r"Nobody can stop the body when a \1 is lost: look at its `lost`, or call its `check()`."
            "\n"
            r"The block raises `\2` at its end."
        ),
    ),
    (
        r"A function or a function; it runs in a thread of its own, one call after the other\.",
        "It runs in a thread for listeners, one call after the other: it may use the connection.",
    ),
    (r"Run a coroutine in one process", "Run a function in one process"),
    (r"while the step ran: it was cancelled;", "while the step ran: its result does not count;"),
    (r"left by an exception or a cancellation it returns it\.", "left by an exception it returns it."),
    (
        r"Lives on the loop and in the process it was made in\.",
        "For every thread of the process it was made in.",
    ),
    (
        r"Call `listener` in the turn in which it is lost; at once if it is\.",
        "Call `listener` when it is lost, in a thread for listeners; soon if it is.",
    ),
    (
        r"reentrant: whoever holds it \(the thread; with `quoracy\.sync`, the thread\)",
        "reentrant: the thread that holds it",
    ),
    (
        r"It is called on the loop, in a turn of its own: it may do anything but block\.",
        "It is called in a thread for listeners, one call after the other: it may use the connection.",
    ),
)


def docstring(doc: str | None, indent: int) -> Iterator[str]:
    if not doc:
        return
    text = adapted(doc)
    quoted = f'"""{text}"""' if "\n" not in text else f'"""{text}\n"""'
    yield textwrap.indent(quoted, " " * indent)


def adapted(doc: str) -> str:
    """A docstring for readers who have no `async`."""
    lines = textwrap.dedent(_first_line_out(doc)).strip("\n").split("\n")
    kept: list[str] = []
    skipping = False
    for line in lines:
        parameter = re.match(r"(\w+)(, \w+)*: ", line)
        if parameter is not None:
            skipping = parameter[1] in LEFT_OUT
        elif not line.startswith(" "):
            skipping = False
        if not skipping:
            kept.append(line)
    text = "\n".join(kept).strip()
    for pattern, replacement in _WORDS:
        text = re.sub(pattern, replacement, text)
    for pattern, replacement in _SENTENCES:
        text = re.sub(pattern.replace(" ", r"\s+"), replacement, text)
    return "\n".join(_wrapped(line) for line in text.split("\n"))


def _wrapped(line: str) -> str:
    """A line that became too long, in two."""
    indent = line[: len(line) - len(line.lstrip())]
    return line if len(line) <= _WIDTH else textwrap.fill(line, _WIDTH, subsequent_indent=indent)


def _first_line_out(doc: str) -> str:
    """A docstring with its first line indented as the others are."""
    first, _, rest = doc.partition("\n")
    indents = [len(line) - len(line.lstrip()) for line in rest.split("\n") if line.strip()]
    return " " * min(indents, default=0) + first + "\n" + rest
