"""Operations in words, one to a line, for whoever has to find the cause of a violation."""

from __future__ import annotations

from collections.abc import Sequence

from tests.checkers.history import Op

__all__ = ["told"]


def told(ops: Sequence[Op], *, since: float | None = None) -> str:
    """A table: when (seconds since the first call), who, what."""
    if since is None:
        since = min((op.call for op in ops), default=0.0)
    return "\n".join(_line(op, since) for op in ops)


def _line(op: Op, since: float) -> str:
    done = "     ?    " if op.done is None else f"{op.done - since:10.6f}"
    revision = "" if op.revision is None else f"  @{op.revision}"
    return f"  {op.call - since:10.6f} .. {done}  client {op.client:<4} {op.key}: {_what(op)}{revision}"


def _what(op: Op) -> str:
    if op.kind == "read":
        return f"read {op.value!r}"
    if op.kind == "write":
        return f"write {op.value!r}{_unsure(op)}"
    return f"cas {op.expected!r} -> {op.value!r}{_unsure(op) or ('' if op.ok else ', which failed')}"


def _unsure(op: Op) -> str:
    return ", no answer" if op.done is None else ""
