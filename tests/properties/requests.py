"""Random requests, on a handful of keys that are prefixes and neighbours of each other.

Revisions are drawn as distances: 0 is the newest, 3 is three before it, -1 does not exist yet.
`at_revision` turns them into real ones when the newest is known.  (Strategies made anew for every
request, with the revision in them, took ten times as long to draw from.)
"""

from __future__ import annotations

from typing import TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from msgspec.structs import replace

from quoracy.store.model import (
    Compare,
    CompareTarget,
    Delete,
    KeyRange,
    Keys,
    Op,
    Put,
    Range,
    Relation,
    SortTarget,
    Txn,
)

__all__ = [
    "KEYS",
    "LEASES",
    "any_keys",
    "at_revision",
    "deletes",
    "key_ranges",
    "keys",
    "puts",
    "ranges",
    "txns",
]

OpT = TypeVar("OpT", bound=Op)

KEYS = (b"a", b"a\0", b"a\xff", b"ab", b"b", b"b\xff\xff", b"c", b"\xff", b"\xff\xff")
LEASES = (1, 2, 3)

# What is refused is rare: a transaction has many parts, and one is enough to refuse it all.
keys = st.sampled_from([*KEYS] * 20 + [b""])
_edges = st.sampled_from([*KEYS, b""])
_values = st.sampled_from([b"", b"1", b"2", b"3" * 40])
_leases = st.sampled_from([0] * 40 + [*LEASES] * 5 + [99])


key_ranges = st.one_of(
    st.builds(KeyRange, _edges, st.one_of(st.none(), _edges)),
    st.builds(KeyRange.prefix, _edges),
    st.builds(KeyRange.exactly, _edges),
    st.just(KeyRange.everything()),
)
any_keys: SearchStrategy[Keys] = st.one_of(keys, key_ranges)


def _maybe(strategy: SearchStrategy[int]) -> SearchStrategy[int | None]:
    return st.one_of(st.none(), st.none(), strategy)


_rarely = st.sampled_from([False, False, False, True])


_ago = st.integers(-1, 15)
_maybe_ago = _maybe(_ago)

_limits = _maybe(st.sampled_from([*range(1, 6)] * 4 + [0]))
_plain_ranges = st.builds(
    Range, any_keys, at=_maybe_ago, limit=_limits, descending=st.booleans(), count_only=_rarely
)
_intricate_ranges = st.builds(
    Range,
    any_keys,
    at=_maybe_ago,
    limit=_limits,
    sort_by=st.sampled_from(SortTarget),
    descending=st.booleans(),
    keys_only=_rarely,
    count_only=_rarely,
    mod_revision_min=_maybe_ago,
    mod_revision_max=_maybe_ago,
    create_revision_min=_maybe_ago,
    create_revision_max=_maybe_ago,
    serializable=_rarely,
)
ranges = st.one_of(_plain_ranges, _intricate_ranges)
_sound_puts = st.one_of(
    st.builds(Put, keys, _values, lease=_leases, prev_kv=st.booleans()),
    st.builds(Put, keys, _values, lease=_leases, prev_kv=st.booleans()),
    st.builds(Put, keys, lease=_leases, ignore_value=st.just(True)),
    st.builds(Put, keys, _values, ignore_lease=st.just(True), ignore_value=st.just(False)),
    st.builds(Put, keys, ignore_lease=st.just(True), ignore_value=st.just(True)),
)
_unsound_puts = st.builds(Put, keys, _values, lease=_leases, ignore_value=_rarely, ignore_lease=_rarely)
puts = st.integers(0, 19).flatmap(lambda roll: _sound_puts if roll else _unsound_puts)
deletes = st.builds(Delete, any_keys, prev_kv=st.booleans())


_relations = st.sampled_from(Relation)
_REVISION_TARGETS = (CompareTarget.CREATE, CompareTarget.MOD)
compares = st.one_of(
    st.builds(Compare, any_keys, st.just(CompareTarget.VALUE), _relations, _values),
    st.builds(Compare, any_keys, st.just(CompareTarget.VERSION), _relations, st.integers(0, 4)),
    st.builds(Compare, any_keys, st.just(CompareTarget.LEASE), _relations, _leases),
    st.builds(Compare, any_keys, st.sampled_from(_REVISION_TARGETS), _relations, _ago),
)


# Of four operations two are puts; below the top, one in five is a transaction.
_kinds: SearchStrategy[SearchStrategy[Op]] = st.sampled_from((puts, puts, deletes, ranges))
_deep = st.sampled_from((False, False, False, False, True))
_compares = st.lists(compares, max_size=2).map(tuple)
_counts = st.integers(0, 3)


@st.composite
def _txns(draw: st.DrawFn, depth: int) -> Txn:
    def branch() -> tuple[Op, ...]:
        return tuple(op() for _ in range(draw(_counts)))

    def op() -> Op:
        if depth and draw(_deep):
            return draw(_nested[depth - 1])
        return draw(draw(_kinds))

    return Txn(draw(_compares), then=branch(), otherwise=branch())


_nested = [_txns(depth) for depth in range(3)]
txns = _nested[2]


def at_revision(op: OpT, newest: int) -> OpT:
    """The request with its distances turned into revisions."""

    def real(ago: int | None) -> int | None:
        return None if ago is None else max(newest - ago, 0)

    match op:
        case Range():
            return replace(
                op,
                at=real(op.at),
                mod_revision_min=real(op.mod_revision_min),
                mod_revision_max=real(op.mod_revision_max),
                create_revision_min=real(op.create_revision_min),
                create_revision_max=real(op.create_revision_max),
            )
        case Txn():
            return replace(
                op,
                compares=tuple(
                    replace(compare, operand=real(compare.operand))
                    if compare.target in _REVISION_TARGETS and isinstance(compare.operand, int)
                    else compare
                    for compare in op.compares
                ),
                then=tuple(at_revision(part, newest) for part in op.then),
                otherwise=tuple(at_revision(part, newest) for part in op.otherwise),
            )
    return op
