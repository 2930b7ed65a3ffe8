"""Which keys a range finds: one, [a, b), a prefix, from a key on, everything, nothing."""

from __future__ import annotations

import pytest

from quoracy.errors import InvalidRequest
from quoracy.store.api import Store
from quoracy.store.model import KeyRange, Keys, Put, Txn

_KEYS = (
    b"\0",
    b"a",
    b"a\0",
    b"a/",
    b"a/1",
    b"a/1\xff",
    b"a/2",
    b"a0",
    b"b",
    b"b\xff",
    b"b\xff\0",
    b"b\xff\xff",
    b"b\xff\xffz",
    b"c",
    b"\xff",
    b"\xff\0",
    b"\xff\xff",
    b"\xff\xffz",
)


async def _found(store: Store, keys: Keys) -> list[bytes]:
    await store.txn(Txn(then=tuple(Put(key, key) for key in reversed(_KEYS))))
    result = await store.range(keys)
    assert all(kv.key == kv.value for kv in result.kvs)
    assert (result.count, result.more) == (len(result.kvs), False)
    return [kv.key for kv in result.kvs]


@pytest.mark.parametrize("key", _KEYS)
async def test_a_single_key_finds_itself_only(store: Store, key: bytes) -> None:
    assert await _found(store, key) == [key]


async def test_a_missing_key_finds_nothing(store: Store) -> None:
    assert await _found(store, b"a/3") == []


async def test_exactly_is_the_key_itself(store: Store) -> None:
    assert await _found(store, KeyRange.exactly(b"a")) == [b"a"]


@pytest.mark.parametrize(
    ("start", "end"),
    [
        (b"a", b"b"),
        (b"a", b"a\0"),
        (b"a/1", b"a/2"),
        (b"a0", b"b\xff"),
        (b"", b"a"),
        (b"", b"\0"),
        (b"a1", b"azz"),
        (b"\xff", b"\xff\xff\xff"),
    ],
)
async def test_a_half_open_range_has_its_start_and_not_its_end(
    store: Store, start: bytes, end: bytes
) -> None:
    expected = sorted(key for key in _KEYS if start <= key < end)
    assert await _found(store, KeyRange(start, end)) == expected


@pytest.mark.parametrize(
    "prefix", [b"a", b"a/", b"a/1", b"b\xff", b"b\xff\xff", b"\xff", b"\xff\xff", b"zz", b""]
)
async def test_a_prefix_finds_every_key_that_starts_with_it(store: Store, prefix: bytes) -> None:
    expected = sorted(key for key in _KEYS if key.startswith(prefix))
    assert await _found(store, KeyRange.prefix(prefix)) == expected


@pytest.mark.parametrize("start", [b"\0", b"a/1", b"a/1\0", b"b\xff", b"\xff\xff", b"\xff\xff\xff"])
async def test_from_key_finds_that_key_and_all_after_it(store: Store, start: bytes) -> None:
    expected = sorted(key for key in _KEYS if key >= start)
    assert await _found(store, KeyRange.from_key(start)) == expected


async def test_everything_finds_everything_in_key_order(store: Store) -> None:
    assert await _found(store, KeyRange.everything()) == sorted(_KEYS)


@pytest.mark.parametrize(
    "keys", [KeyRange(b"b", b"b"), KeyRange(b"c", b"a"), KeyRange(b"a", b""), KeyRange(b"", b"")]
)
async def test_an_empty_or_inverted_range_finds_nothing(store: Store, keys: KeyRange) -> None:
    assert await _found(store, keys) == []


async def test_an_empty_store_has_nothing(store: Store) -> None:
    result = await store.range(KeyRange.everything())
    assert (result.kvs, result.count, result.more) == ((), 0, False)


async def test_an_empty_key_is_refused(store: Store) -> None:
    with pytest.raises(InvalidRequest):
        await store.range(b"")


async def test_a_deleted_key_is_not_found(store: Store) -> None:
    await store.put(b"a")
    await store.put(b"b")
    await store.delete(b"a")
    assert [kv.key for kv in (await store.range(KeyRange.everything())).kvs] == [b"b"]
    assert (await store.range(b"a")).count == 0
