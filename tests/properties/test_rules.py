"""The pure rules of the waist against brute force."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from quoracy.errors import DuplicateKey
from quoracy.store.digest import Digest
from quoracy.store.model import KeyRange, KeyValue, Op, Put, Range, Txn
from quoracy.store.rules import Limits, check_txn, writes
from tests.properties.naive import is_written_twice
from tests.properties.requests import KEYS, deletes, key_ranges

_ALL_FF = st.integers(0, 3).map(lambda count: b"\xff" * count)
_bytes = st.one_of(
    st.binary(max_size=3), _ALL_FF, st.builds(bytes.__add__, st.binary(max_size=2), _ALL_FF)
)


def _sound_txns(depth: int) -> st.SearchStrategy[Txn]:
    """Transactions with nothing wrong but, perhaps, a key that is written twice."""
    sound_deletes = deletes.filter(lambda op: op.keys != b"")
    simple: st.SearchStrategy[Op] = st.one_of(
        st.builds(Put, st.sampled_from(KEYS)), sound_deletes, st.just(Range(b"a"))
    )
    op = st.one_of(simple, _sound_txns(depth - 1)) if depth else simple
    branch = st.lists(op, max_size=3).map(tuple)
    return st.builds(Txn, then=branch, otherwise=branch)


@given(_sound_txns(2))
def test_a_key_written_twice_is_refused_exactly_if_some_path_writes_it_twice(txn: Txn) -> None:
    try:
        check_txn(txn, Limits())
    except DuplicateKey:
        refused = True
    else:
        refused = False
    assert refused == is_written_twice(txn)


@given(_sound_txns(2))
def test_a_transaction_writes_if_any_operation_in_it_is_no_read(txn: Txn) -> None:
    def has_write(ops: tuple[Op, ...]) -> bool:
        for op in ops:
            if isinstance(op, Txn):
                if has_write(op.then + op.otherwise):
                    return True
            elif not isinstance(op, Range):
                return True
        return False

    assert writes((txn,)) == has_write((txn,))


@given(prefix=_bytes, key=_bytes)
def test_a_prefix_contains_exactly_the_keys_that_start_with_it(prefix: bytes, key: bytes) -> None:
    keys = KeyRange.prefix(prefix)
    assert keys.contains(key) == key.startswith(prefix)
    assert keys.contains(prefix + key)


@given(key=_bytes, other=_bytes)
def test_exactly_contains_its_key_and_no_other(key: bytes, other: bytes) -> None:
    keys = KeyRange.exactly(key)
    assert keys.contains(key)
    assert keys.contains(other) == (key == other)
    assert keys.is_single


@given(keys=key_ranges, key=_bytes)
def test_a_single_range_contains_at_most_its_start(keys: KeyRange, key: bytes) -> None:
    if keys.is_single:
        assert keys.contains(key) == (key == keys.start)


_kvs = st.lists(
    st.builds(
        KeyValue,
        st.binary(max_size=3),
        st.binary(max_size=3),
        st.integers(1, 300),
        st.integers(1, 300),
        st.integers(1, 300),
        st.integers(-(2**63), 2**63 - 1),
    ),
    max_size=12,
)


def _digest(*pages: list[KeyValue]) -> str:
    digest = Digest()
    for page in pages:
        digest.update(page)
    return digest.hexdigest()


@given(kvs=_kvs, cuts=st.lists(st.integers(0, 12), max_size=4))
def test_the_digest_does_not_depend_on_the_pages_it_is_fed(
    kvs: list[KeyValue], cuts: list[int]
) -> None:
    edges = [0, *sorted(cuts), len(kvs)]
    pages = [kvs[start:end] for start, end in pairwise(edges)]
    assert _digest(*pages) == _digest(kvs)


@given(one=_kvs, other=_kvs)
def test_different_contents_have_different_digests(one: list[KeyValue], other: list[KeyValue]) -> None:
    assert (_digest(one) == _digest(other)) == (one == other)


@given(kvs=_kvs.filter(bool), at=st.integers(0, 11), field=st.sampled_from(KeyValue.__struct_fields__))
def test_any_changed_field_changes_the_digest(kvs: list[KeyValue], at: int, field: str) -> None:
    at %= len(kvs)
    value: bytes | int = getattr(kvs[at], field)
    changed = value + b"\0" if isinstance(value, bytes) else value ^ 1
    other = [*kvs[:at], replace(kvs[at], **{field: changed}), *kvs[at + 1 :]]
    assert _digest(other) != _digest(kvs)
