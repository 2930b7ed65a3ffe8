"""What a refused request leaves out: which key, which lease, which revision is the oldest kept.

Our errors say it.  Most of it is in the request; where several operations could be meant, or the
server knows a number that it did not tell, it is asked.  What the answer shows may be a moment younger
than the refusal; it is for a human, or for a fresh start, and good enough for both.
"""

from __future__ import annotations

from collections.abc import Iterator

from quoracy.store.model import Keys, Op, Put, Range, Txn

__all__ = ["describe", "keys_read", "leases_named", "ops_count", "puts_that_keep", "revisions_read"]

_SHOWN_BYTES_MAX = 60


def describe(op: Op | str) -> str:
    """A request in a few words.

    >>> describe(Put(b"jobs/7", b"..."))
    "put of b'jobs/7'"
    """
    match op:
        case str():
            return op
        case Put():
            return f"put of {_short(op.key)}"
        case Range():
            return f"range of {_short(op.keys)}"
        case Txn():
            first = next((inner for inner in op.then + op.otherwise), None)
            count = len(op.then) + len(op.otherwise)
            named = f" ({describe(first)}, ...)" if first is not None else ""
            return f"transaction of {count} operations{named}"
        case _:
            return f"delete of {_short(op.keys)}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_BYTES_MAX else text[:_SHOWN_BYTES_MAX] + "..."


def _operations(op: Op) -> Iterator[Op]:
    yield op
    if isinstance(op, Txn):
        for inner in op.then + op.otherwise:
            yield from _operations(inner)


def puts_that_keep(op: Op) -> list[bytes]:
    """The keys whose value or lease should be kept, so that they must exist."""
    return [
        inner.key
        for inner in _operations(op)
        if isinstance(inner, Put) and (inner.ignore_value or inner.ignore_lease)
    ]


def leases_named(op: Op) -> list[int]:
    named = (inner.lease for inner in _operations(op) if isinstance(inner, Put) and inner.lease)
    return list(dict.fromkeys(named))


def keys_read(op: Op) -> Keys:
    """Some keys that the request reads in the past, which its user therefore may read."""
    return next(
        (inner.keys for inner in _operations(op) if isinstance(inner, Range) and inner.at is not None),
        b"\0",
    )


def revisions_read(op: Op) -> list[int]:
    return [inner.at for inner in _operations(op) if isinstance(inner, Range) and inner.at is not None]


def ops_count(op: Op) -> int:
    """The length of the longest list of the longest path, which is what servers limit."""
    if not isinstance(op, Txn):
        return 0
    here = max(len(op.compares), len(op.then), len(op.otherwise))
    return here + max((ops_count(inner) for inner in op.then + op.otherwise), default=0)
