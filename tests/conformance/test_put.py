"""Put: writes one key, attaches a lease, shows or keeps what was there."""

from __future__ import annotations

from typing import Any

import pytest

from quoracy.errors import InvalidRequest, KeyNotFound, LeaseNotFound
from quoracy.store.api import Store
from quoracy.store.model import KeyRange, KeyValue, Put, PutResult, Revision, Txn
from tests.support.asking import contents, get, newest


async def test_put_replaces_the_value(store: Store) -> None:
    await store.put(b"k", b"1")
    await store.put(b"k", b"2")
    assert await contents(store) == {b"k": b"2"}


async def test_put_answers_with_the_revision_it_made_and_nothing_else(store: Store) -> None:
    await store.put(b"k", b"1")
    assert await store.put(b"k", b"2") == PutResult(Revision(3), prev_kv=None)


# -- prev_kv ----------------------------------------------------------------------------------


async def test_prev_kv_is_what_the_put_replaced(store: Store) -> None:
    await store.put(b"k", b"1")
    await store.put(b"k", b"2")
    before = await get(store, b"k")
    result = await store.put(b"k", b"3", prev_kv=True)
    assert result.prev_kv == before
    assert result.prev_kv == KeyValue(b"k", b"2", create_revision=2, mod_revision=3, version=2)


async def test_prev_kv_of_a_new_key_is_none(store: Store) -> None:
    assert (await store.put(b"k", prev_kv=True)).prev_kv is None


async def test_prev_kv_of_a_deleted_key_is_none(store: Store) -> None:
    await store.put(b"k", b"1")
    await store.delete(b"k")
    assert (await store.put(b"k", prev_kv=True)).prev_kv is None


# -- lease ------------------------------------------------------------------------------------


async def test_put_attaches_the_lease_it_names(store: Store) -> None:
    lease = (await store.grant(60)).id
    await store.put(b"k", b"v", lease=lease)
    kv = await get(store, b"k")
    assert kv is not None
    assert kv.lease == lease
    assert (await store.time_to_live(lease, keys=True)).keys == (b"k",)


async def test_a_lease_that_does_not_exist_is_refused_and_nothing_is_written(store: Store) -> None:
    await store.put(b"k", b"old")
    with pytest.raises(LeaseNotFound) as caught:
        await store.put(b"k", b"new", lease=4711)
    assert caught.value.lease == 4711
    assert await contents(store) == {b"k": b"old"}
    assert await newest(store) == 2


async def test_a_revoked_lease_is_refused(store: Store) -> None:
    lease = (await store.grant(60)).id
    await store.revoke(lease)
    with pytest.raises(LeaseNotFound):
        await store.put(b"k", lease=lease)


# -- ignore_value, ignore_lease ---------------------------------------------------------------


async def test_ignore_value_keeps_the_value_and_changes_the_lease(store: Store) -> None:
    lease = (await store.grant(60)).id
    await store.put(b"k", b"kept")
    await store.put(b"k", ignore_value=True, lease=lease)
    assert await get(store, b"k") == KeyValue(
        b"k", b"kept", create_revision=2, mod_revision=3, version=2, lease=lease
    )


async def test_ignore_value_without_a_lease_detaches_the_key(store: Store) -> None:
    lease = (await store.grant(60)).id
    await store.put(b"k", b"kept", lease=lease)
    await store.put(b"k", ignore_value=True)
    assert (await store.time_to_live(lease, keys=True)).keys == ()
    assert await contents(store) == {b"k": b"kept"}


async def test_ignore_lease_keeps_the_lease_and_changes_the_value(store: Store) -> None:
    lease = (await store.grant(60)).id
    await store.put(b"k", b"old", lease=lease)
    await store.put(b"k", b"new", ignore_lease=True)
    assert await get(store, b"k") == KeyValue(
        b"k", b"new", create_revision=2, mod_revision=3, version=2, lease=lease
    )
    assert (await store.time_to_live(lease, keys=True)).keys == (b"k",)


async def test_ignore_lease_of_a_key_without_one_keeps_it_so(store: Store) -> None:
    await store.put(b"k", b"old")
    await store.put(b"k", b"new", ignore_lease=True)
    kv = await get(store, b"k")
    assert kv is not None
    assert (kv.value, kv.lease) == (b"new", 0)


async def test_ignoring_both_writes_the_same_again(store: Store) -> None:
    lease = (await store.grant(60)).id
    await store.put(b"k", b"kept", lease=lease)
    result = await store.put(b"k", ignore_value=True, ignore_lease=True, prev_kv=True)
    assert result.prev_kv == KeyValue(b"k", b"kept", 2, 2, 1, lease)
    assert await get(store, b"k") == KeyValue(b"k", b"kept", 2, 3, 2, lease)


async def test_ignoring_needs_the_key_to_exist(store: Store) -> None:
    await store.put(b"gone", b"v")
    await store.delete(b"gone")
    for key in (b"never", b"gone"):
        for put in (
            store.put(key, ignore_value=True),
            store.put(key, b"v", ignore_lease=True),
            store.put(key, ignore_value=True, ignore_lease=True),
        ):
            with pytest.raises(KeyNotFound) as caught:
                await put
            assert caught.value.key == key
    assert await contents(store) == {}


async def test_what_is_ignored_must_not_be_given(store: Store) -> None:
    lease = (await store.grant(60)).id
    await store.put(b"k", b"v")
    with pytest.raises(InvalidRequest):
        await store.put(b"k", b"value", ignore_value=True)
    with pytest.raises(InvalidRequest):
        await store.put(b"k", b"value", ignore_lease=True, lease=lease)
    assert await newest(store) == 2


async def test_an_empty_key_is_refused(store: Store) -> None:
    with pytest.raises(InvalidRequest):
        await store.put(b"", b"v")
    assert await contents(store) == {}


@pytest.mark.parametrize(
    ("key", "value"), [("text", b""), (b"k", "text"), (bytearray(b"k"), b""), (b"k", None), (7, b"")]
)
async def test_what_is_not_bytes_is_refused(store: Store, key: bytes, value: bytes) -> None:
    with pytest.raises(InvalidRequest, match="bytes"):
        await store.put(key, value)
    with pytest.raises(InvalidRequest, match="bytes"):
        await store.txn(Txn(then=(Put(b"fine", b""), Put(key, value))))
    assert (await store.range(KeyRange.everything())).count == 0


_TEXT: Any = "text"


@pytest.mark.parametrize("keys", [_TEXT, KeyRange(_TEXT, None), KeyRange(b"a", _TEXT), None])
async def test_keys_that_are_not_bytes_are_refused(store: Store, keys: bytes) -> None:
    for ask in (store.range, store.delete):
        with pytest.raises(InvalidRequest, match="bytes"):
            await ask(keys)
    with pytest.raises(InvalidRequest, match="bytes"):
        store.watch(keys)
