"""What a range does with the keys it found: filter, sort, limit, blank; the count ignores it all."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from quoracy.errors import InvalidRequest
from quoracy.store.api import RangeOptions, Store
from quoracy.store.model import KeyRange, KeyValue, RangeResult, SortTarget
from tests.support.asking import EVERYTHING

# key: (create_revision, mod_revision, version, value), each column in another order.
_EXPECTED = {
    b"a": (5, 5, 1, b"m"),
    b"b": (3, 9, 2, b"z"),
    b"c": (4, 8, 3, b"k"),
    b"d": (2, 10, 4, b"a"),
}

_SORT_KEYS: dict[SortTarget, Callable[[KeyValue], bytes | int]] = {
    SortTarget.KEY: lambda kv: kv.key,
    SortTarget.VERSION: lambda kv: kv.version,
    SortTarget.CREATE: lambda kv: kv.create_revision,
    SortTarget.MOD: lambda kv: kv.mod_revision,
    SortTarget.VALUE: lambda kv: kv.value,
}


@pytest.fixture
async def filled(store: Store) -> Store:
    """Four keys whose orders by key, version, create, mod and value all differ."""
    for key, value in (
        (b"d", b"1"),
        (b"b", b"1"),
        (b"c", b"1"),
        (b"a", b"m"),
        (b"c", b"2"),
        (b"d", b"2"),
        (b"c", b"k"),
        (b"b", b"z"),
        (b"d", b"3"),
        (b"d", b"a"),
    ):
        await store.put(key, value)
    return store


def _keys(result: RangeResult) -> list[bytes]:
    return [kv.key for kv in result.kvs]


def _columns(kvs: Iterable[KeyValue]) -> dict[bytes, tuple[int, int, int, bytes]]:
    return {kv.key: (kv.create_revision, kv.mod_revision, kv.version, kv.value) for kv in kvs}


async def test_the_table_of_this_file_is_what_the_store_has(filled: Store) -> None:
    found = _columns((await filled.range(EVERYTHING)).kvs)
    assert found == _EXPECTED | {b"d": (2, 11, 4, b"a")}


# -- limit ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("limit", "more"), [(1, True), (3, True), (4, False), (5, False)])
async def test_limit_cuts_what_is_returned_and_not_what_is_counted(
    filled: Store, limit: int, more: bool
) -> None:
    result = await filled.range(EVERYTHING, limit=limit)
    assert _keys(result) == [b"a", b"b", b"c", b"d"][:limit]
    assert (result.more, result.count) == (more, 4)


@pytest.mark.parametrize("limit", [0, -1])
async def test_a_limit_that_lets_nothing_through_is_refused(filled: Store, limit: int) -> None:
    for keys in (EVERYTHING, b"a"):
        with pytest.raises(InvalidRequest):
            await filled.range(keys, limit=limit)


async def test_limit_applies_inside_the_range(filled: Store) -> None:
    result = await filled.range(KeyRange(b"b", b"d"), limit=1)
    assert (_keys(result), result.more, result.count) == ([b"b"], True, 2)


async def test_limit_cuts_after_sorting(filled: Store) -> None:
    result = await filled.range(EVERYTHING, limit=2, sort_by=SortTarget.MOD, descending=True)
    assert (_keys(result), result.more, result.count) == ([b"d", b"b"], True, 4)


async def test_limit_cuts_after_filtering(filled: Store) -> None:
    result = await filled.range(EVERYTHING, limit=2, mod_revision_min=8)
    assert (_keys(result), result.more, result.count) == ([b"b", b"c"], True, 4)
    result = await filled.range(EVERYTHING, limit=3, mod_revision_min=8)
    assert (_keys(result), result.more, result.count) == ([b"b", b"c", b"d"], False, 4)


# -- keys only, count only --------------------------------------------------------------------


async def test_keys_only_blanks_the_values_and_nothing_else(filled: Store) -> None:
    full = await filled.range(EVERYTHING)
    bare = await filled.range(EVERYTHING, keys_only=True)
    assert [kv.value for kv in bare.kvs] == [b""] * 4
    for kv, blank in zip(full.kvs, bare.kvs, strict=True):
        assert (kv.key, kv.create_revision, kv.mod_revision, kv.version, kv.lease) == (
            (blank.key, blank.create_revision, blank.mod_revision, blank.version, blank.lease)
        )


async def test_keys_only_blanks_after_sorting_by_value(filled: Store) -> None:
    result = await filled.range(EVERYTHING, keys_only=True, sort_by=SortTarget.VALUE)
    assert _keys(result) == [b"d", b"c", b"a", b"b"]


async def test_keys_only_leaves_the_stored_values_alone(filled: Store) -> None:
    await filled.range(EVERYTHING, keys_only=True)
    assert (await filled.range(b"a")).kvs[0].value == b"m"


async def test_count_only_counts_and_returns_no_keys(filled: Store) -> None:
    result = await filled.range(KeyRange(b"b", b"d"), count_only=True)
    assert (result.kvs, result.count, result.more) == ((), 2, False)


async def test_count_only_counts_the_past(filled: Store) -> None:
    assert (await filled.range(EVERYTHING, count_only=True, at=3)).count == 2


async def test_count_only_ignores_limit_and_filters(filled: Store) -> None:
    result = await filled.range(EVERYTHING, count_only=True, limit=1, mod_revision_min=8)
    assert (result.kvs, result.count) == ((), 4)


# -- sorting ----------------------------------------------------------------------------------


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("target", list(SortTarget))
async def test_every_sort_in_both_orders(filled: Store, target: SortTarget, descending: bool) -> None:
    unsorted = (await filled.range(EVERYTHING)).kvs
    expected = sorted(unsorted, key=_SORT_KEYS[target], reverse=descending)
    result = await filled.range(EVERYTHING, sort_by=target, descending=descending)
    assert result.kvs == tuple(expected)
    assert (result.count, result.more) == (4, False)


@pytest.mark.parametrize("descending", [False, True])
async def test_sorting_looks_at_the_revision_that_is_read(filled: Store, descending: bool) -> None:
    # At revision 7 the versions are a 1, b 1, c 2, d 2 and the values m, 1, 2, 2.
    result = await filled.range(
        KeyRange(b"a", b"d"), at=7, sort_by=SortTarget.VALUE, descending=descending
    )
    expected = [b"b", b"c", b"a"]
    assert _keys(result) == (expected[::-1] if descending else expected)


# -- filters ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"mod_revision_min": 8}, [b"b", b"c", b"d"]),
        ({"mod_revision_min": 12}, []),
        ({"mod_revision_max": 8}, [b"a", b"c"]),
        ({"mod_revision_max": 4}, []),
        ({"mod_revision_min": 8, "mod_revision_max": 9}, [b"b", b"c"]),
        ({"create_revision_min": 4}, [b"a", b"c"]),
        ({"create_revision_min": 6}, []),
        ({"create_revision_max": 3}, [b"b", b"d"]),
        ({"create_revision_max": 1}, []),
        ({"create_revision_min": 3, "create_revision_max": 4}, [b"b", b"c"]),
        ({"mod_revision_min": 9, "create_revision_max": 2}, [b"d"]),
        ({"mod_revision_min": 9, "mod_revision_max": 8}, []),
    ],
)
async def test_filters_bound_both_ends_and_leave_the_count_alone(
    filled: Store, options: RangeOptions, expected: list[bytes]
) -> None:
    result = await filled.range(EVERYTHING, **options)
    assert _keys(result) == expected
    assert (result.count, result.more) == (4, False)


async def test_filters_look_at_the_revision_that_is_read(filled: Store) -> None:
    assert _keys(await filled.range(EVERYTHING, at=7, mod_revision_max=6)) == [b"a", b"b", b"c"]


async def test_filter_sort_limit_and_blank_in_that_order(filled: Store) -> None:
    result = await filled.range(
        EVERYTHING,
        mod_revision_min=8,
        sort_by=SortTarget.VALUE,
        descending=True,
        limit=2,
        keys_only=True,
    )
    assert _keys(result) == [b"b", b"c"]
    assert [kv.value for kv in result.kvs] == [b"", b""]
    assert (result.count, result.more) == (4, True)


# -- consistency ------------------------------------------------------------------------------


async def test_a_serializable_range_gives_a_state_the_store_was_in(filled: Store) -> None:
    result = await filled.range(EVERYTHING, serializable=True)
    again = await filled.range(EVERYTHING, at=result.revision)
    assert result.kvs == again.kvs
    assert result.count == again.count
