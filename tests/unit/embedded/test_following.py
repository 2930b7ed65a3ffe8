"""Followers of a store in this process: told of everything once, in order, when it is durable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from quoracy.engines.embedded.engine import EmbeddedStore
from quoracy.engines.opening import open_embedded
from quoracy.errors import Compacted, LeaseNotFound, NoSpace, StorageFailed, StoreClosed, TooLarge
from quoracy.store.following import KeyWrite
from quoracy.store.legacy import InProcess
from quoracy.store.model import Compare, Delete, KeyRange, KeyValue, Put, Txn
from quoracy.store.rules import Limits

OURS = KeyRange.prefix(b"ours/")


class Told:
    """A follower that writes down what it is told, and what the store says is durable meanwhile."""

    def __init__(self) -> None:
        self.revisions: list[tuple[int, list[tuple[bytes, bytes]]]] = []
        self.durable_revision = 0
        self.error: BaseException | None = None
        self.on_change: Callable[[int], None] = lambda _: None

    def changed(self, revision: int, kvs: Sequence[KeyValue]) -> None:
        self.revisions.append((revision, [(kv.key, kv.value) for kv in kvs]))
        self.on_change(revision)

    def wrote(self, first: int, last: int) -> None:
        self.revisions += [(revision, []) for revision in range(first, last + 1)]

    def durable(self, revision: int) -> None:
        self.durable_revision = revision

    def failed(self, error: BaseException) -> None:
        self.error = error


def fail_test(revision: int, error: BaseException) -> None:
    raise AssertionError(revision, error)


async def test_embedded_stores_are_in_process() -> None:
    async with open_embedded("memory:") as store:
        assert isinstance(store, InProcess)


async def test_told_of_its_keys_only_and_of_how_far_everything_is() -> None:
    async with open_embedded("memory:") as store:
        told = Told()
        store.follow(OURS, after=1, follower=told)
        await store.put(b"theirs", b"1")
        await store.txn(Txn((), (Put(b"ours/a", b"2"), Put(b"theirs", b"2"), Put(b"ours/b", b"2"))))
        assert told.revisions == [(3, [(b"ours/a", b"2"), (b"ours/b", b"2")])]
        assert told.durable_revision == 3


async def test_history_is_told_before_follow_returns(tmp_path: Path) -> None:
    async with open_embedded(f"sqlite:{tmp_path / 'db'}") as store:
        for value in (b"1", b"2", b"3"):
            await store.put(b"ours/a", value)
        told = Told()
        store.follow(OURS, after=2, follower=told)
        assert [revision for revision, _ in told.revisions] == [3, 4]
        await store.put(b"ours/a", b"4")
        assert [revision for revision, _ in told.revisions] == [3, 4, 5]


async def test_following_from_compacted_history_is_refused() -> None:
    async with open_embedded("memory:") as store:
        for value in (b"1", b"2", b"3"):
            await store.put(b"ours/a", value)
        await store.compact(4)
        with pytest.raises(Compacted):
            store.follow(OURS, after=2, follower=Told())
        store.follow(OURS, after=3, follower=Told())


async def test_taken_is_told_only_when_durable_and_in_order(tmp_path: Path) -> None:
    async with open_embedded(f"sqlite:{tmp_path / 'db'}") as store:
        told = Told()
        following = store.follow(OURS, after=1, follower=told)
        foretold = [
            following.take(Txn((), (Put(b"ours/a", b"%d" % number),)), fail_test).revision
            for number in range(5)
        ]
        assert foretold == [2, 3, 4, 5, 6]
        assert told.revisions == []
        assert (await store.range(b"ours/a")).kvs == ()  # nothing shows before it is durable
        await store.put(b"other", b"")  # joins their commit or comes after it
        assert [revision for revision, _ in told.revisions] == foretold


async def test_taken_compares_are_judged_at_once() -> None:
    async with open_embedded("memory:") as store:
        following = store.follow(OURS, after=1, follower=Told())
        assert following.take(Txn((), (Put(b"ours/a"),)), fail_test).succeeded
        again = Txn((Compare.missing(b"ours/a"),), (Put(b"ours/a"),))
        assert not following.take(again, fail_test).succeeded
        assert following.take(Txn((), (Delete(b"ours/a"),)), fail_test).succeeded
        assert following.take(again, fail_test).succeeded


async def test_foreign_changes_are_known_before_they_are_durable() -> None:
    async with open_embedded("memory:") as store:
        told = Told()
        following = store.follow(OURS, after=1, follower=told)
        following.take(Txn((), (Put(b"ours/a"),)), fail_test)
        assert following.foreign_revision <= 1
        lease = (await store.grant(60)).id
        await store.put(b"theirs", b"")
        assert following.foreign_revision <= 1
        put = await store.put(b"ours/b", b"", lease=lease)
        assert following.foreign_revision == put.revision
        gone = store.end_lease(lease)  # in memory only, as yet
        assert following.foreign_revision == gone
        assert told.durable_revision < gone


async def test_what_is_refused_changes_nothing() -> None:
    limits = Limits(storage_bytes_max=20_000)
    async with open_embedded("memory:", limits=limits) as store:
        following = store.follow(OURS, after=1, follower=Told())
        with pytest.raises(LeaseNotFound):
            following.take(Txn((), (Put(b"ours/a"), Put(b"ours/b", b"", lease=7))), fail_test)
        with pytest.raises(NoSpace):
            following.take(Txn((), (Put(b"ours/a", bytes(30_000)),)), fail_test)
        assert (await store.status()).revision == 1


async def test_room_is_made_of_history() -> None:
    limits = Limits(storage_bytes_max=100_000)
    async with open_embedded("memory:", limits=limits) as store:
        told = Told()
        following = store.follow(OURS, after=1, follower=told)
        big = Txn((), (Put(b"ours/a", bytes(40_000)),))
        following.take(big, fail_test)
        following.take(big, fail_test)
        with pytest.raises(NoSpace):
            following.take(big, fail_test)
        await store.make_room()
        assert following.take(big, fail_test).succeeded


async def test_a_follower_that_fails_is_dropped_and_nobody_else_suffers() -> None:
    async with open_embedded("memory:") as store:
        bad, good = Told(), Told()

        def explode(revision: int) -> None:
            raise RuntimeError(f"cannot bear {revision}")

        bad.on_change = explode
        store.follow(OURS, after=1, follower=bad)
        store.follow(OURS, after=1, follower=good)
        assert (await store.put(b"ours/a", b"")).revision == 2
        assert (await store.put(b"ours/a", b"")).revision == 3
        assert isinstance(bad.error, RuntimeError)
        assert len(bad.revisions) == 1
        assert [revision for revision, _ in good.revisions] == [2, 3]


async def test_closing_and_stopping() -> None:
    stopped, closed = Told(), Told()
    async with open_embedded("memory:") as store:
        store.follow(OURS, after=1, follower=stopped).stop()
        store.follow(OURS, after=1, follower=closed)
        await store.put(b"ours/a", b"")
    assert stopped.revisions == []
    assert stopped.error is None
    assert isinstance(closed.error, StoreClosed)


async def test_a_disk_that_fails_is_told_to_takers_and_followers(tmp_path: Path) -> None:
    async with open_embedded(f"sqlite:{tmp_path / 'db'}") as store:
        assert isinstance(store, EmbeddedStore)
        told, failed = Told(), list[int]()

        def on_failed(revision: int, error: BaseException) -> None:
            assert isinstance(error, StorageFailed)
            failed.append(revision)

        following = store.follow(OURS, after=1, follower=told)
        following.take(Txn((), (Put(b"ours/a"),)), on_failed)
        following.write((KeyWrite(b"ours/a", b"1"),), on_failed)
        store.fail(OSError("no disk"))
        assert failed == [2, 3]
        assert told.error is not None
        assert told.revisions == []


async def test_its_own_plain_writes_are_told_by_their_revisions_in_their_place() -> None:
    async with open_embedded("memory:") as store:
        told = Told()
        following = store.follow(OURS, after=1, follower=told)
        first = following.write((KeyWrite(b"ours/a", b"1"), KeyWrite(b"ours/b", b"1")), fail_test)
        following.write((KeyWrite(b"ours/a", None), KeyWrite(b"ours/b", b"2")), fail_test)
        following.take(Txn((), (Put(b"ours/c", b"3"),)), fail_test)
        last = following.write((KeyWrite(b"ours/missing", None), KeyWrite(b"ours/c", b"4")), fail_test)
        await store.put(b"theirs", b"5")
        assert (first, last) == (2, 5)
        assert told.revisions == [(2, []), (3, []), (4, [(b"ours/c", b"3")]), (5, [])]
        assert told.durable_revision == 6
        found = await store.range(OURS)
        assert [(kv.key, kv.value, kv.version) for kv in found.kvs] == [
            (b"ours/b", b"2", 2),
            (b"ours/c", b"4", 2),
        ]
        assert (await store.range(b"ours/a", at=2)).kvs[0].value == b"1"


async def test_a_plain_write_that_cannot_be_taken_changes_nothing() -> None:
    limits = Limits(key_bytes_max=100, request_bytes_max=200, storage_bytes_max=1000)
    async with open_embedded("memory:", limits=limits) as store:
        told = Told()
        following = store.follow(OURS, after=1, follower=told)
        for writes, error in (
            ((KeyWrite(b"ours/" + b"k" * 100, b""),), TooLarge),
            ((KeyWrite(b"ours/a", b"v" * 100), KeyWrite(b"ours/b", b"v" * 100)), TooLarge),
            ((KeyWrite(b"ours/a", b""), KeyWrite(b"ours/b", b"", lease=7)), LeaseNotFound),
        ):
            with pytest.raises(error):
                following.write(writes, fail_test)
        assert following.write((KeyWrite(b"ours/a", b""),), fail_test) == 2
        await store.put(b"theirs", b"")
        assert told.revisions == [(2, [])]
