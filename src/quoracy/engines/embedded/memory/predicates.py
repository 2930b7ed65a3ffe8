"""Whether a version of a key is what a compare or a range asks for.  Pure functions."""

from __future__ import annotations

from quoracy.store.model import Compare, CompareTarget, KeyValue, Range, Relation

__all__ = ["compares", "has_filters", "passes", "without_value"]

_MISSING = KeyValue(b"", b"", 0, 0, 0, 0)


def without_value(kv: KeyValue) -> KeyValue:
    return KeyValue(kv.key, b"", kv.create_revision, kv.mod_revision, kv.version, kv.lease)


def has_filters(op: Range) -> bool:
    return not (
        op.mod_revision_min is None
        and op.mod_revision_max is None
        and op.create_revision_min is None
        and op.create_revision_max is None
    )


def passes(op: Range, kv: KeyValue) -> bool:
    return (
        (op.mod_revision_min is None or kv.mod_revision >= op.mod_revision_min)
        and (op.mod_revision_max is None or kv.mod_revision <= op.mod_revision_max)
        and (op.create_revision_min is None or kv.create_revision >= op.create_revision_min)
        and (op.create_revision_max is None or kv.create_revision <= op.create_revision_max)
    )


def compares(compare: Compare, kv: KeyValue | None) -> bool:
    if kv is None:
        if compare.target is CompareTarget.VALUE:
            return False
        kv = _MISSING
    # Chains of `is`, the common ones first: looking an Enum up in a dictionary calls its __hash__, in
    # Python, and costs more than the comparison.
    target, relation, operand = compare.target, compare.relation, compare.operand
    actual: bytes | int
    if target is CompareTarget.MOD:
        actual = kv.mod_revision
    elif target is CompareTarget.CREATE:
        actual = kv.create_revision
    elif target is CompareTarget.VERSION:
        actual = kv.version
    elif target is CompareTarget.VALUE:
        actual = kv.value
    else:
        actual = kv.lease
    if relation is Relation.EQUAL:
        return actual == operand
    if relation is Relation.NOT_EQUAL:
        return actual != operand
    if relation is Relation.LESS:
        return bool(actual < operand)  # type: ignore[operator]  # of one kind: the rules saw to that
    return bool(actual > operand)  # type: ignore[operator]
