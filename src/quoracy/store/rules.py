"""What a request must be before any engine looks at its own state: sizes, shapes, no key written twice.

Pure functions of the request and the limits; state-dependent checks (leases, compaction) are the
engine's.  The facts are etcd's [server/etcdserver/api/v3rpc/key.go].

Compiled: every write is checked here.  What a caller gave is `Any` until its type was looked at, since
compiled code would raise a `TypeError` of its own for a key that is text.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from typing import Any, Final

from quoracy.errors import DuplicateKey, InvalidRequest, TooLarge
from quoracy.store.limits import Limits
from quoracy.store.model import CompareTarget, Delete, KeyRange, Keys, Op, Put, Range, Txn

__all__ = [
    "Limits",
    "as_range",
    "check_delete",
    "check_keys",
    "check_lease_id",
    "check_lease_ttl",
    "check_op",
    "check_put",
    "check_range",
    "check_txn",
    "reads_serializably",
    "request_too_large",
    "txn_bytes",
    "writes",
]

_INT64_MAX = 2**63 - 1

_VALUE: Final = CompareTarget.VALUE


def as_range(keys: Keys) -> KeyRange:
    return keys if isinstance(keys, KeyRange) else KeyRange.exactly(keys)


def check_put(op: Any, limits: Limits) -> int:
    """Refuse what is malformed or too large; return the bytes it carries."""
    # Types are checked where data enters: text would be taken, written, and not be readable again.
    key, value = op.key, op.value
    if not (isinstance(key, bytes) and isinstance(value, bytes)):
        raise _not_bytes(value if isinstance(key, bytes) else key)
    key_size = len(key)
    size = key_size + len(value)
    if not key_size:
        raise InvalidRequest("the key is empty. Give it at least one byte.")
    if key_size > limits.key_bytes_max:
        raise TooLarge(
            "the key's size in bytes",
            size=key_size,
            size_max=limits.key_bytes_max,
            setting="key_bytes_max",
        )
    if size > limits.request_bytes_max:
        raise request_too_large(size, limits)
    if op.ignore_value and value:
        raise InvalidRequest("a put with ignore_value has a value too. Give one or the other.")
    if op.ignore_lease and op.lease:
        raise InvalidRequest("a put with ignore_lease names a lease too. Give one or the other.")
    return size


def check_range(op: Any, limits: Limits) -> int:
    """Refuse what is malformed; return the bytes it carries."""
    size = check_keys(op.keys, limits)
    if op.limit is not None and op.limit < 1:
        raise InvalidRequest(f"limit is {op.limit}. Give a positive one, or none for no limit.")
    if op.at is not None and op.at < 1:
        raise InvalidRequest(f"at is {op.at}; revisions start at 1. Leave it out for the newest.")
    return size


def check_delete(op: Any, limits: Limits) -> int:
    """Refuse what is malformed; return the bytes it carries."""
    return check_keys(op.keys, limits)


def check_txn(txn: Any, limits: Limits) -> None:
    """Refuse what is too large, malformed, or writes a key twice."""
    size = _check_level(txn, limits, limits.txn_ops_max)
    if size > limits.request_bytes_max:
        raise request_too_large(size, limits)
    _check_written(txn.then)
    _check_written(txn.otherwise)


def check_op(op: Any, limits: Limits) -> None:
    """Refuse an operation that breaks a rule."""
    if isinstance(op, Txn):
        check_txn(op, limits)
    elif isinstance(op, Put):
        check_put(op, limits)
    elif isinstance(op, Range):
        check_range(op, limits)
    else:
        check_delete(op, limits)


def check_lease_ttl(ttl_s: float, limits: Limits) -> float:
    """The time to live that is granted for the one asked for."""
    if not ttl_s <= limits.lease_ttl_max_s:  # also catches NaN
        raise InvalidRequest(
            f"a time to live of {ttl_s} s is too long; the most is {limits.lease_ttl_max_s:.0f} s."
        )
    return max(float(ttl_s), limits.lease_ttl_min_s)


def check_lease_id(lease: int) -> None:
    if not -_INT64_MAX - 1 <= lease <= _INT64_MAX or not lease:
        raise InvalidRequest(
            f"lease id {lease} is not possible. Give a 64-bit number other than 0, or none."
        )


def writes(ops: Any) -> bool:
    """Whether carrying these out could change anything."""
    for op in ops:
        if isinstance(op, Txn):
            if writes(op.then) or writes(op.otherwise):
                return True
        elif not isinstance(op, Range):
            return True
    return False


def reads_serializably(txn: Txn) -> bool:
    """Whether every range in it would do with what a replica has."""
    return all(
        reads_serializably(op) if isinstance(op, Txn) else isinstance(op, Range) and op.serializable
        for op in (*txn.then, *txn.otherwise)
    ) and bool(txn.then or txn.otherwise)


def _check_range_type(keys: Any) -> None:
    if not isinstance(keys, KeyRange):
        raise _not_bytes(keys)
    start, end = _ends(keys)
    if not isinstance(start, bytes):
        raise _not_bytes(start)
    if not isinstance(end, bytes | None):
        raise _not_bytes(end)


def _ends(keys: Any) -> tuple[Any, Any]:
    return keys.start, keys.end


def _not_bytes(given: object) -> InvalidRequest:
    hint = "Encode it first, as in .encode()." if isinstance(given, str) else "Convert it first."
    return InvalidRequest(f"keys and values are bytes, not {type(given).__name__}: {given!r}. {hint}")


def request_too_large(size: int, limits: Limits) -> TooLarge:
    return TooLarge(
        "the request's size in bytes",
        size=size,
        size_max=limits.request_bytes_max,
        setting="request_bytes_max",
    )


def check_keys(keys: Any, limits: Limits) -> int:
    """Refuse a key that cannot exist; return the bytes the key or the range takes in a request."""
    if isinstance(keys, bytes):
        if not keys:
            raise InvalidRequest("the key is empty. Give it a byte, or ask for a KeyRange.")
        size = len(keys)
    else:
        _check_range_type(keys)
        size = _keys_bytes(keys)
    if size > limits.key_bytes_max:
        raise TooLarge(
            "the key's size in bytes",
            size=size,
            size_max=limits.key_bytes_max,
            setting="key_bytes_max",
        )
    return size


def txn_bytes(txn: Txn) -> int:
    """What a transaction carries, as `check_txn` counts it; for one whose keys are bytes or ranges."""
    size = 0
    for compare in txn.compares:
        operand = compare.operand
        size += _keys_bytes(compare.keys) + (len(operand) if isinstance(operand, bytes) else 8)
    for op in (*txn.then, *txn.otherwise):
        if isinstance(op, Put):
            size += len(op.key) + len(op.value)
        elif isinstance(op, Txn):
            size += txn_bytes(op)
        else:
            size += _keys_bytes(op.keys)
    return size


def _keys_bytes(keys: Any) -> int:
    if isinstance(keys, bytes):
        return len(keys)
    return max(len(keys.start), len(keys.end or b"") - 1)


def _check_level(txn: Any, limits: Limits, ops_max: int) -> int:
    """Check one level and those below it; return the bytes they carry."""
    ops_count = max(len(txn.compares), len(txn.then), len(txn.otherwise))
    if ops_count > ops_max:
        raise TooLarge(
            "the transaction's number of operations",
            size=ops_count + limits.txn_ops_max - ops_max,
            size_max=limits.txn_ops_max,
            setting="txn_ops_max",
        )
    size = 0
    for compare in txn.compares:
        size += _check_compare(compare, limits)
    for op in txn.then + txn.otherwise:
        if isinstance(op, Put):
            size += check_put(op, limits)
        elif isinstance(op, Delete):
            size += check_delete(op, limits)
        elif isinstance(op, Range):
            size += check_range(op, limits)
        else:
            size += _check_level(op, limits, ops_max - ops_count)
    return size


def _check_compare(compare: Any, limits: Limits) -> int:
    size = check_keys(compare.keys, limits)
    target, operand = compare.target, compare.operand
    has_bytes = isinstance(operand, bytes)
    if has_bytes is not (target is _VALUE):
        kind = "a number" if has_bytes else "bytes"
        raise InvalidRequest(f"a compare of {target.value} needs {kind}, not {operand!r}.")
    return size + (len(operand) if isinstance(operand, bytes) else 8)


def _check_written(ops: Any) -> None:
    """Refuse a key written twice.  Where only single keys are written, each once, a set shows it."""
    keys: list[bytes] = []
    for op in ops:
        if isinstance(op, Put):
            keys.append(op.key)
        elif isinstance(op, Delete) and isinstance(op.keys, bytes):
            keys.append(op.keys)
        elif not isinstance(op, Range):
            _written(ops)
            return
    if len(set(keys)) < len(keys):
        _written(ops)


def _written(ops: tuple[Op, ...]) -> tuple[list[bytes], list[KeyRange]]:
    """The keys that `ops` put, in order, and the ranges they delete; refuses a key written twice.

    `then` and `otherwise` of one nested transaction may both write a key: only one of them runs.  Costs
    N log N: nesting lets a small request carry thousands of puts and of deletes.

    Differs from etcd: refused as well are a nested put followed by a *sibling's* nested delete of the
    same key (etcd refuses only the reverse order) and a put with a delete that has no end (etcd takes
    that end for a key).  In both a key would change twice in one revision.
    """
    written = [_written_by(op) for op in ops]
    puts = sorted(key for op_puts, _ in written for key in op_puts)
    for key, next_key in itertools.pairwise(puts):
        if key == next_key:
            raise DuplicateKey(key)
    for op_puts, op_deletes in written:
        for keys in op_deletes:
            covered = _within(puts, keys)
            if len(covered) > len(_within(op_puts, keys)):  # by another operation than this one
                raise DuplicateKey(next(key for key in covered if key not in op_puts))
    return puts, [keys for _, op_deletes in written for keys in op_deletes]


def _written_by(op: Op) -> tuple[list[bytes], list[KeyRange]]:
    match op:
        case Put():
            return [op.key], []
        case Delete():
            return [], [as_range(op.keys)]
        case Range():
            return [], []
        case Txn():
            then_puts, then_deletes = _written(op.then)
            otherwise_puts, otherwise_deletes = _written(op.otherwise)
            return sorted({*then_puts, *otherwise_puts}), then_deletes + otherwise_deletes


def _within(ordered: list[bytes], keys: KeyRange) -> list[bytes]:
    first = bisect_left(ordered, keys.start)
    return ordered[first : len(ordered) if keys.end is None else bisect_left(ordered, keys.end)]
