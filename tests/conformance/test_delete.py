"""Delete: removes every key of a range, says how many, shows them if asked."""

from __future__ import annotations

import pytest

from quoracy.errors import InvalidRequest
from quoracy.store.api import Store
from quoracy.store.model import KeyRange, Keys
from tests.support.asking import EVERYTHING, contents

_KEYS = (b"a", b"a/1", b"a/2", b"b", b"\xff", b"\xff\xff")


@pytest.fixture
async def filled(store: Store) -> Store:
    for key in _KEYS:
        await store.put(key, b"of " + key)
    return store


@pytest.mark.parametrize(
    ("keys", "gone"),
    [
        (b"a", {b"a"}),
        (b"missing", set()),
        (KeyRange(b"a", b"b"), {b"a", b"a/1", b"a/2"}),
        (KeyRange.prefix(b"a/"), {b"a/1", b"a/2"}),
        (KeyRange.prefix(b"\xff"), {b"\xff", b"\xff\xff"}),
        (KeyRange.from_key(b"b"), {b"b", b"\xff", b"\xff\xff"}),
        (EVERYTHING, set(_KEYS)),
        (KeyRange(b"b", b"a"), set()),
        (KeyRange(b"b", b"b"), set()),
    ],
)
async def test_delete_removes_exactly_the_keys_of_its_range(
    filled: Store, keys: Keys, gone: set[bytes]
) -> None:
    result = await filled.delete(keys)
    assert result.deleted == len(gone)
    assert set(await contents(filled)) == set(_KEYS) - gone
    assert result.revision == (8 if gone else 7)


async def test_prev_kvs_are_the_deleted_keys_in_order(filled: Store) -> None:
    await filled.put(b"a/1", b"newer")
    before = (await filled.range(KeyRange(b"a", b"b"))).kvs
    result = await filled.delete(KeyRange(b"a", b"b"), prev_kv=True)
    assert result.prev_kvs == before
    assert [kv.value for kv in result.prev_kvs] == [b"of a", b"newer", b"of a/2"]


async def test_prev_kvs_are_left_out_unless_asked_for(filled: Store) -> None:
    assert (await filled.delete(EVERYTHING)).prev_kvs == ()


async def test_a_second_delete_finds_nothing(filled: Store) -> None:
    await filled.delete(b"a")
    result = await filled.delete(b"a", prev_kv=True)
    assert (result.deleted, result.prev_kvs, result.revision) == (0, (), 8)


async def test_a_deleted_key_leaves_its_lease(store: Store) -> None:
    lease = (await store.grant(60)).id
    await store.put(b"a", lease=lease)
    await store.put(b"b", lease=lease)
    await store.delete(b"a")
    assert (await store.time_to_live(lease, keys=True)).keys == (b"b",)


async def test_a_key_put_anew_does_not_return_to_the_lease_it_had(store: Store) -> None:
    lease = (await store.grant(60)).id
    await store.put(b"a", lease=lease)
    await store.delete(b"a")
    await store.put(b"a", b"free")
    await store.revoke(lease)
    assert await contents(store) == {b"a": b"free"}


async def test_an_empty_key_is_refused(store: Store) -> None:
    with pytest.raises(InvalidRequest):
        await store.delete(b"")
