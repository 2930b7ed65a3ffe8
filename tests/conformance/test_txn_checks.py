"""Everything is checked before anything is changed: a transaction happens whole or not at all."""

from __future__ import annotations

import pytest

from quoracy.errors import (
    Compacted,
    DuplicateKey,
    FutureRevision,
    InvalidRequest,
    KeyNotFound,
    LeaseNotFound,
    QuoracyError,
)
from quoracy.store.api import Store
from quoracy.store.model import Compare, Delete, KeyRange, Op, Put, Range, Txn
from tests.support.asking import EVERYTHING, contents, newest

_ALL_WRITTEN_TWICE: list[tuple[Op, ...]] = [
    (Put(b"k"), Put(b"k")),
    (Put(b"k"), Range(b"k"), Put(b"k", b"2")),
    (Put(b"k"), Delete(b"k")),
    (Delete(b"k"), Put(b"k")),
    (Delete(KeyRange(b"a", b"z")), Put(b"k")),
    (Put(b"k"), Delete(KeyRange.prefix(b"k"))),
    (Put(b"k"), Delete(KeyRange.from_key(b"k"))),
    (Put(b"k"), Delete(EVERYTHING)),
    (Put(b"k"), Txn(then=(Put(b"k"),))),
    (Put(b"k"), Txn(otherwise=(Put(b"k"),))),
    (Txn(then=(Put(b"k"),)), Put(b"k")),
    (Put(b"k"), Txn(then=(Delete(b"k"),))),
    (Delete(b"k"), Txn(then=(Put(b"k"),))),
    (Delete(EVERYTHING), Txn(otherwise=(Put(b"k"),))),
    (Txn(then=(Put(b"k"),)), Txn(then=(Put(b"k"),))),
    (Txn(then=(Put(b"k"),)), Txn(otherwise=(Put(b"k"),))),
    (Txn(then=(Put(b"k"),)), Txn(then=(Delete(b"k"),))),
    (Txn(then=(Delete(b"k"),)), Txn(then=(Put(b"k"),))),
    (Txn(then=(Txn(then=(Put(b"k"),)),)), Put(b"k")),
    (Txn(then=(Put(b"k"), Put(b"k"))),),
    (Txn(otherwise=(Put(b"k"), Delete(b"k"))),),
]

_ALL_WRITTEN_ONCE: list[tuple[Op, ...]] = [
    (Put(b"j"), Put(b"k")),
    (Put(b"k"), Delete(b"k\0")),
    (Put(b"k"), Delete(KeyRange(b"a", b"k"))),
    (Put(b"k"), Delete(KeyRange(b"z", b"a"))),
    (Delete(b"k"), Delete(b"k"), Delete(EVERYTHING)),
    (Txn(then=(Put(b"k"),), otherwise=(Put(b"k"),)),),
    (Txn(then=(Put(b"k"),), otherwise=(Delete(b"k"),)),),
    (Txn(then=(Delete(EVERYTHING),), otherwise=(Put(b"k"),)),),
    (Txn(then=(Put(b"j"),)), Txn(then=(Put(b"k"),))),
    (Txn(then=(Delete(b"k"),)), Txn(then=(Delete(b"k"),))),
]


@pytest.mark.parametrize("ops", _ALL_WRITTEN_TWICE)
async def test_a_key_written_twice_is_refused_in_either_branch(
    store: Store, ops: tuple[Op, ...]
) -> None:
    # The branch that would not run is judged as well: what is refused does not depend on the data.
    for txn in (Txn(then=ops), Txn(otherwise=ops), Txn(then=(Txn(then=ops),))):
        with pytest.raises(DuplicateKey) as caught:
            await store.txn(txn)
        assert caught.value.key == b"k"
    assert await newest(store) == 1


@pytest.mark.parametrize("ops", _ALL_WRITTEN_ONCE)
async def test_a_key_written_once_on_any_path_is_allowed(store: Store, ops: tuple[Op, ...]) -> None:
    for txn in (Txn(then=ops), Txn(otherwise=ops), Txn(then=ops, otherwise=ops)):
        assert (await store.txn(txn)).succeeded


_REFUSED: list[tuple[Op, type[QuoracyError]]] = [
    (Put(b"x", lease=4711), LeaseNotFound),
    (Put(b"x", ignore_value=True), KeyNotFound),
    (Put(b"x", b"v", ignore_lease=True), KeyNotFound),
    (Put(b"kept", b"v", ignore_value=True), InvalidRequest),
    (Put(b"kept", lease=1, ignore_lease=True), InvalidRequest),
    (Put(b""), InvalidRequest),
    (Delete(b""), InvalidRequest),
    (Range(b""), InvalidRequest),
    (Range(b"kept", at=0), InvalidRequest),
    (Range(b"kept", at=1), Compacted),
    (Range(b"kept", at=99), FutureRevision),
    (Txn(then=(Put(b"y"), Put(b"x", lease=4711))), LeaseNotFound),
    (Txn(then=(Txn(then=(Range(b"kept", at=99),)),)), FutureRevision),
    (Txn((Compare.missing(b"kept"),), otherwise=(Put(b"x", ignore_value=True),)), KeyNotFound),
]


@pytest.mark.parametrize(("last", "error"), _REFUSED)
async def test_an_operation_refused_late_undoes_nothing_because_nothing_was_done(
    store: Store, last: Op, error: type[QuoracyError]
) -> None:
    lease = (await store.grant(60)).id
    await store.put(b"kept", b"1")
    await store.put(b"kept", b"2", lease=lease)
    await store.put(b"doomed", b"3")
    await store.compact(3)
    before = (await store.hash()).digest
    async with store.watch(EVERYTHING) as stream:
        with pytest.raises(error):
            await store.txn(
                Txn(
                    then=(
                        Put(b"new", b"n", lease=lease),
                        Delete(b"doomed"),
                        Txn(then=(Put(b"nested"),)),
                        last,
                    )
                )
            )
        assert await contents(store) == {b"kept": b"2", b"doomed": b"3"}
        assert (await store.hash()).digest == before
        assert (await store.time_to_live(lease, keys=True)).keys == (b"kept",)
        assert await newest(store) == 4
        await store.put(b"after")
        assert (await anext(stream)).revision == 5


async def test_a_revision_made_by_the_transaction_itself_is_still_the_future_for_it(
    store: Store,
) -> None:
    await store.put(b"k")
    with pytest.raises(FutureRevision):
        await store.txn(Txn(then=(Put(b"k", b"2"), Range(b"k", at=3))))
    assert await newest(store) == 2


async def test_a_key_made_earlier_in_the_transaction_cannot_be_kept(store: Store) -> None:
    # It would be written twice; and before the transaction it does not exist.
    with pytest.raises((DuplicateKey, KeyNotFound)):
        await store.txn(Txn(then=(Put(b"k", b"v"), Put(b"k", ignore_value=True))))
    assert await contents(store) == {}


async def test_what_depends_on_the_data_is_checked_on_the_branch_that_runs_only(
    store: Store,
) -> None:
    unsound: tuple[Op, ...] = (
        Put(b"x", lease=4711),
        Put(b"y", ignore_value=True),
        Range(b"z", at=99),
    )
    result = await store.txn(
        Txn(then=(Put(b"k"), Txn(then=(Put(b"j"),), otherwise=unsound)), otherwise=unsound)
    )
    assert result.succeeded
    assert set(await contents(store)) == {b"j", b"k"}


@pytest.mark.parametrize("op", [Put(b""), Delete(b""), Range(b""), Range(b"k", limit=-1)])
async def test_what_does_not_depend_on_the_data_is_checked_on_both_branches(
    store: Store, op: Op
) -> None:
    with pytest.raises(InvalidRequest):
        await store.txn(Txn(then=(Put(b"k"),), otherwise=(op,)))
    assert await contents(store) == {}
