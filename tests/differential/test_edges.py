"""Where random requests seldom go: first revisions, limits, leases that end, where we differ."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import closing

import pytest

from quoracy.errors import Compacted, DuplicateKey, InvalidRequest, TooLarge
from quoracy.store.model import (
    Compare,
    Delete,
    EventKind,
    KeyRange,
    Op,
    Put,
    Range,
    RangeResult,
    Revision,
    SortTarget,
    Txn,
    TxnResult,
    WatchBatch,
)
from tests.differential.asking import (
    Compact,
    Done,
    Grant,
    Granted,
    KeepAlive,
    Leases,
    Refused,
    Request,
    Revoke,
    TimeToLive,
    Watch,
)
from tests.differential.etcd_server import WatchConnection
from tests.differential.gateway import watch_create
from tests.differential.lockstep import Lockstep, Pair

_ALL = KeyRange.everything()
_TTL_S = 10_000  # never up during a test


async def _ask(lockstep: Lockstep, requests: Sequence[Request]) -> None:
    for request in requests:
        await lockstep.ask(request)


@pytest.mark.parametrize(
    "requests",
    [
        pytest.param((Range(_ALL), Range(_ALL, at=1), Range(_ALL, at=2)), id="read"),
        pytest.param(
            (Delete(_ALL), Txn(), Txn(then=(Delete(b"a"),)), Range(_ALL)), id="change-nothing"
        ),
        pytest.param((Grant(1, _TTL_S), Revoke(1), Leases(), Range(_ALL)), id="lease-without-keys"),
        pytest.param(
            (Compact(2), Put(b"a"), Compact(2), Range(_ALL, at=1)), id="compact-the-first-put"
        ),
        pytest.param(
            (Compact(1), Compact(1), Put(b"a"), Put(b"b"), Range(_ALL), Range(_ALL, at=1)),
            id="compact-before-any-put",
        ),
    ],
)
def test_new_stores_start_alike(new_pair: Pair, requests: Sequence[Request]) -> None:
    async def steps(lockstep: Lockstep) -> None:
        await _ask(lockstep, requests)
        await lockstep.watch([Watch(_ALL, after=max(0, lockstep.compact_revision - 1), prev_kv=True)])

    new_pair.run(steps(new_pair.lockstep))


@pytest.mark.parametrize("sort_by", SortTarget)
@pytest.mark.parametrize("descending", [False, True])
def test_sorted_ranges_are_equal_with_and_without_a_limit(
    pair: Pair, sort_by: SortTarget, descending: bool
) -> None:
    async def steps(lockstep: Lockstep) -> None:
        puts = (Put(b"b", b"1"), Put(b"a", b"3"), Put(b"c", b"2"), Put(b"a", b"3"))
        await _ask(lockstep, puts)
        for limit in (None, 1, 2, 3, 4):
            await lockstep.ask(Range(_ALL, sort_by=sort_by, descending=descending, limit=limit))
        await lockstep.ask(Range(_ALL, sort_by=sort_by, mod_revision_min=lockstep.revision - 2))

    pair.run(steps(pair.lockstep))


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(Put(b""), id="put"),
        pytest.param(Range(b""), id="range"),
        pytest.param(Delete(b""), id="delete"),
        pytest.param(Txn(then=(Put(b""),)), id="txn-put"),
        pytest.param(Txn(otherwise=(Range(b""),)), id="txn-branch-not-taken"),
        pytest.param(Txn(compares=(Compare.version(b"", "=", 0),)), id="compare"),
        pytest.param(Put(b"a", b"1", ignore_value=True), id="ignored-value"),
        pytest.param(Put(b"a", lease=1, ignore_lease=True), id="ignored-lease"),
    ],
)
def test_malformed_requests_are_refused(pair: Pair, request_: Request) -> None:
    answer = pair.run(pair.lockstep.ask(request_))
    assert isinstance(answer, Refused)
    assert answer.kind is InvalidRequest


# -- which error, when there are several -------------------------------------------------------


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(Put(b"gone", lease=99, ignore_value=True), id="lease-and-key-in-put"),
        pytest.param(Txn(then=(Put(b"gone", lease=99, ignore_value=True),)), id="lease-and-key-in-txn"),
        pytest.param(
            Txn(then=(Put(b"a", lease=99), Put(b"gone", ignore_lease=True))), id="lease-then-key"
        ),
        pytest.param(
            Txn(then=(Put(b"gone", ignore_lease=True), Put(b"a", lease=99))), id="key-then-lease"
        ),
        pytest.param(
            Txn(then=(Range(_ALL, at=2**40), Put(b"a", lease=99))), id="future-range-then-lease"
        ),
        pytest.param(
            Txn(then=(Range(_ALL, at=1), Put(b"gone", ignore_value=True))),
            id="compacted-range-then-key",
        ),
        pytest.param(
            Txn(then=(Range(_ALL, at=2**40), Range(_ALL, at=1))), id="future-then-compacted-range"
        ),
        pytest.param(
            Txn(then=(Txn(then=(Range(_ALL, at=1),)), Put(b"a", lease=99))),
            id="nested-range-then-lease",
        ),
        pytest.param(Txn(then=(Put(b"a"), Put(b"a"), Put(b""))), id="duplicate-then-empty-key"),
        pytest.param(Txn(then=(Put(b"a", lease=99), Put(b"a"))), id="lease-then-duplicate"),
        pytest.param(Txn(then=(Put(b"a"),) * 129), id="duplicate-and-too-many"),
        pytest.param(
            Txn(otherwise=(Put(b"a", lease=99), Range(_ALL, at=1))), id="errors-in-the-branch-not-taken"
        ),
    ],
)
def test_of_several_errors_the_same_is_reported(pair: Pair, request_: Request) -> None:
    async def steps(lockstep: Lockstep) -> None:
        await _ask(lockstep, (Put(b"a"), Put(b"a")))
        await lockstep.ask(Compact(lockstep.revision))
        await lockstep.ask(request_)

    pair.run(steps(pair.lockstep))


# -- limits ------------------------------------------------------------------------------------


def _ranges(count: int) -> tuple[Op, ...]:
    return (Range(b"a", count_only=True),) * count


@pytest.mark.parametrize(
    ("txn", "is_refused"),
    [
        pytest.param(Txn(then=_ranges(128)), False, id="as-many-as-allowed"),
        pytest.param(Txn(then=_ranges(129)), True, id="one-more"),
        pytest.param(Txn(otherwise=_ranges(129)), True, id="one-more-in-the-branch-not-taken"),
        pytest.param(Txn(compares=(Compare.missing(b"a"),) * 129), True, id="one-more-compare"),
        pytest.param(
            Txn(compares=(Compare.missing(b"a"),) * 128, then=_ranges(128), otherwise=_ranges(128)),
            False,
            id="as-many-as-allowed-of-everything",
        ),
        pytest.param(Txn(then=(Txn(then=_ranges(127)),)), False, id="as-many-as-allowed-nested"),
        pytest.param(Txn(then=(Txn(then=_ranges(128)),)), True, id="one-more-nested"),
        pytest.param(
            Txn(then=(Txn(then=_ranges(126)), Txn(otherwise=_ranges(126)))),
            False,
            id="beside-each-other",
        ),
        pytest.param(
            Txn(then=(Txn(then=_ranges(127)), Txn(otherwise=_ranges(1)))), True, id="one-more-beside"
        ),
        pytest.param(Txn(then=(Txn(then=(Txn(then=_ranges(126)),)),)), False, id="nested-twice"),
        pytest.param(
            Txn(then=(Txn(then=(Txn(then=_ranges(127)),)),)), True, id="one-more-nested-twice"
        ),
    ],
)
def test_transactions_may_be_equally_long(pair: Pair, txn: Txn, is_refused: bool) -> None:
    answer = pair.run(pair.lockstep.ask(txn))
    assert isinstance(answer, Refused) == is_refused
    assert not isinstance(answer, Refused) or answer.kind is TooLarge


@pytest.mark.parametrize(("value_bytes", "is_refused"), [(1_500_000, False), (1_600_000, True)])
def test_requests_may_be_equally_large(pair: Pair, value_bytes: int, is_refused: bool) -> None:
    value = b"v" * value_bytes
    for request in (Put(b"a", value), Txn(then=(Put(b"b", value),))):
        answer = pair.run(pair.lockstep.ask(request))
        assert isinstance(answer, Refused) == is_refused
        assert not isinstance(answer, Refused) or answer.kind is TooLarge


# -- leases ------------------------------------------------------------------------------------


@pytest.mark.parametrize("ttl_s", [-1, 0, 1, 2, 3, 9_000_000_000, 9_000_000_001])
def test_the_same_times_to_live_are_granted(pair: Pair, ttl_s: int) -> None:
    async def steps(lockstep: Lockstep) -> None:
        if isinstance(await lockstep.ask(Grant(7, ttl_s)), Granted):
            # A short one may end on its own first; it has no keys, so nobody notices.
            await lockstep.ask_apart(Revoke(7))

    pair.run(steps(pair.lockstep))


def test_a_key_belongs_to_the_lease_it_was_last_put_with(pair: Pair) -> None:
    requests = (
        Grant(1, _TTL_S),
        Grant(2, _TTL_S),
        Grant(2, _TTL_S),
        Put(b"a", lease=1),
        Put(b"b", lease=1),
        Put(b"c", lease=1),
        Put(b"d", lease=1),
        TimeToLive(1),
        Put(b"b", lease=2),
        Put(b"c"),
        Put(b"d", ignore_lease=True),
        TimeToLive(1),
        TimeToLive(2),
        KeepAlive(1),
        Txn(then=(Delete(b"a"), Put(b"e", lease=1))),
        TimeToLive(1),
        Revoke(1),
        Range(_ALL),
        Revoke(1),
        TimeToLive(1),
        KeepAlive(1),
        Put(b"a", lease=1),
        Leases(),
    )
    pair.run(_ask(pair.lockstep, requests))


def test_an_expired_lease_deletes_its_keys_in_one_revision(pair: Pair) -> None:
    async def steps(lockstep: Lockstep) -> None:
        requests = (
            Grant(1, 3),
            Put(b"held/b", lease=1),
            Put(b"held/a", b"1", lease=1),
            Put(b"kept"),
            Grant(2, _TTL_S),
            Put(b"held/a", b"2", lease=1),
            Put(b"held/c", lease=2),
        )
        await _ask(lockstep, requests)
        watch = Watch(KeyRange.prefix(b"held/"), after=lockstep.revision, prev_kv=True)
        [watched] = await lockstep.watch([watch], until=lockstep.revision + 1)
        [(revision, events)] = watched.batches
        assert [event.kv.key for event in events] == [b"held/a", b"held/b"]
        assert all(event.kind is EventKind.DELETE for event in events)
        found = await lockstep.ask(Range(_ALL))
        assert isinstance(found, RangeResult)
        assert found.revision == revision
        await _ask(lockstep, (TimeToLive(1), Leases()))

    pair.run(steps(pair.lockstep))


# -- where we differ, and mean to ----------------------------------------------------------------


@pytest.mark.parametrize(
    "txn",
    [
        pytest.param(
            Txn(then=(Txn(then=(Put(b"a"),)), Txn(then=(Delete(b"a"),)))), id="nested-put-nested-delete"
        ),
        pytest.param(
            Txn(then=(Put(b"b"), Delete(KeyRange.from_key(b"a")))), id="put-delete-without-end"
        ),
        pytest.param(Txn(then=(Delete(_ALL), Put(b"b"))), id="delete-without-end-put"),
    ],
)
def test_only_etcd_takes_transactions_that_write_a_key_twice(new_pair: Pair, txn: Txn) -> None:
    ours, theirs = new_pair.run(new_pair.lockstep.ask_apart(txn))
    assert isinstance(ours, Refused)
    assert ours.kind is DuplicateKey
    assert isinstance(theirs, TxnResult)
    assert theirs.revision == 2


def test_both_refuse_the_nested_delete_before_the_nested_put(pair: Pair) -> None:
    txn = Txn(then=(Txn(then=(Delete(b"a"),)), Txn(then=(Put(b"a"),))))
    answer = pair.run(pair.lockstep.ask(txn))
    assert isinstance(answer, Refused)
    assert answer.kind is DuplicateKey


def test_only_ours_still_delivers_deletes_of_the_compaction_revision(new_pair: Pair) -> None:
    async def steps(lockstep: Lockstep) -> None:
        await _ask(lockstep, (Put(b"a"), Put(b"b"), Delete(b"a"), Put(b"b")))
        deleted_at = lockstep.revision - 1
        await lockstep.ask(Compact(deleted_at))
        watch = Watch(_ALL, after=deleted_at - 1)
        [(ours, theirs)] = await lockstep.watch_apart([watch])
        assert ours.batches[0][0] == deleted_at
        assert ours.batches[1:] == theirs.batches

    new_pair.run(steps(new_pair.lockstep))


def test_only_etcd_compacts_to_a_revision_before_the_first(new_pair: Pair) -> None:
    ours, theirs = new_pair.run(new_pair.lockstep.ask_apart(Compact(0)))
    assert isinstance(ours, Refused)
    assert ours.kind is Compacted
    assert isinstance(theirs, Done)


def test_only_etcd_misses_the_empty_store_when_the_first_put_is_the_oldest_kept(new_pair: Pair) -> None:
    async def steps(lockstep: Lockstep) -> None:
        await _ask(lockstep, (Put(b"a"), Compact(2)))
        [(ours, theirs)] = await lockstep.watch_apart([Watch(_ALL, after=0)])
        assert ours.batches[0][0] == 2  # nothing happened before it, so nothing is lost
        assert theirs.compacted_to == 2

    new_pair.run(steps(new_pair.lockstep))


def test_only_etcd_refuses_to_watch_a_range_without_keys(pair: Pair) -> None:
    async def steps(lockstep: Lockstep) -> None:
        nothing = Watch(KeyRange(b"b", b"a"), after=lockstep.revision)
        connection = WatchConnection(lockstep.port, watch_create(nothing))
        with closing(connection):
            refusal = (await asyncio.to_thread(connection.next_message))["result"]
        assert refusal["canceled"]
        assert refusal["cancel_reason"] == "mvcc: watcher range is empty"
        async with lockstep.store.watch(nothing.keys, after=nothing.after) as stream:
            await _ask(lockstep, (Put(b"a"), Put(b"b")))
            stream.request_progress()
            assert await anext(stream) == WatchBatch(Revision(lockstep.revision))

    pair.run(steps(pair.lockstep))
