"""What the engine does beside the contract: shedding, failing, cancelling, cleaning up after itself."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from quoracy.clock import ManualClock
from quoracy.engines.embedded.committing.group import Batch
from quoracy.engines.embedded.disk.journal import Journal
from quoracy.engines.embedded.engine import EmbeddedStore
from quoracy.engines.opening import open_embedded
from quoracy.errors import DataUnreadable, Indeterminate, Overloaded, StorageFailed
from quoracy.store.completion import Completion
from quoracy.store.model import Alarm, KeyRange, LeaseId, Put, Txn
from quoracy.store.rules import Limits
from tests.support.failing_disk import break_disk
from tests.support.held_disk import HeldDisk


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:{tmp_path / 'q.db'}"


async def test_writes_that_pile_up_are_refused_at_once(url: str) -> None:
    async with open_embedded(url, limits=Limits(pending_bytes_max=1000)) as store:
        writes = [asyncio.ensure_future(store.put(b"%d" % i, b"x" * 100)) for i in range(100)]
        results = await asyncio.gather(*writes, return_exceptions=True)
        refused = [result for result in results if isinstance(result, Overloaded)]
        done = [result for result in results if not isinstance(result, BaseException)]
        assert refused
        assert len(done) + len(refused) == 100
        # Nothing of a refused write is there, and the next one finds room.
        assert (await store.range(KeyRange.everything(), count_only=True)).count == len(done)
        await store.put(b"later")


async def test_history_of_large_transactions_gives_way_as_fast_as_they_come() -> None:
    limits, clock = Limits(storage_bytes_max=4_000_000), ManualClock()
    # In memory: what is left of so small a quota is written while a busy machine does one sweep.
    async with open_embedded("memory:", limits=limits, clock=clock) as store:
        puts = tuple(Put(b"%03d" % number, b"x" * 100) for number in range(100))
        largest = 0
        for number in range(1_000):
            await store.txn(Txn(then=puts))
            largest = max(largest, store.statistics().size_bytes)
            if number % 10 == 0:
                await clock.advance(0.1)  # a tick, which looks how much space is left
        # From three quarters on it does; all of it would be used up after 250 of them.
        assert 0.7 < largest / limits.storage_bytes_max < 0.9


async def test_history_is_freed_slowly_while_a_commit_waits_for_the_disk(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the thread that is to sync it may wait for the processor on which the loop frees."""
    disk, loop = HeldDisk(monkeypatch), asyncio.get_running_loop()
    async with open_embedded(url, clock=ManualClock()) as store:
        for _ in range(50):
            await asyncio.gather(*[store.put(b"key", b"x") for _ in range(100)])
        newest = (await store.put(b"key", b"last")).revision
        await store.compact(newest)
        disk.hold()
        writing = asyncio.ensure_future(store.put(b"key", b"on its way"))
        started, freed_before = loop.time(), store.statistics().garbage_count
        await asyncio.sleep(0.03)
        took_s = loop.time() - started
        freed = store.statistics().garbage_count - freed_before
        disk.release()
        await writing
    # 16 when a millisecond has passed.  (In turns that follow each other it was all of them.)
    assert 0 < freed <= 16 * (took_s / 0.001 + 2)
    assert freed < 4_000


async def test_writers_that_start_one_by_one_end_up_in_two_groups_that_take_turns(url: str) -> None:
    async with open_embedded(url) as store:
        writing = True

        async def write(number: int) -> None:
            while writing:
                await store.put(b"%d" % number)

        async with asyncio.TaskGroup() as writers:
            for number in range(8):
                writers.create_task(write(number))
                for _ in range(number):  # any turn of the loop, whether a commit is under way or not
                    await asyncio.sleep(0)
            for _ in range(20):  # time to meet
                await store.put(b"the ninth")
            before = store.statistics()
            for _ in range(50):
                await store.put(b"the ninth")
            after = store.statistics()
            writing = False
        commits = after.commits_count - before.commits_count
        assert (after.durable_revision - before.durable_revision) / commits > 4


async def put_for_a_client(store: EmbeddedStore, key: bytes, value: bytes = b"") -> object:
    """As a face does it that has clients elsewhere."""
    answer = _Answer()
    store.submit(Put(key, value), answer)
    return await answer.future


class _Answer(Completion):
    """A face's own completion; the engine does not take it for a coroutine's."""

    def __init__(self) -> None:
        super().__init__()
        self.future: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    def done(self, result: object, error: BaseException | None) -> None:
        assert error is None
        self.future.set_result(result)


async def write_twice(store: EmbeddedStore, number: int) -> None:
    await put_for_a_client(store, b"%d" % number)
    for _ in range(2 * number):  # as if answers and requests took their time
        await asyncio.sleep(0)
    await put_for_a_client(store, b"%d" % number)


async def test_clients_who_come_back_some_turns_apart_meet_in_one_commit(url: str) -> None:
    async with open_embedded(url) as store:
        before = store.statistics()
        await asyncio.gather(*(write_twice(store, number) for number in range(8)))
        after = store.statistics()
        assert after.durable_revision - before.durable_revision == 16
        assert after.commits_count - before.commits_count == 2


async def test_without_a_disk_nobody_is_waited_for() -> None:
    async with open_embedded("memory:") as store:
        before = store.statistics()
        await asyncio.gather(*(write_twice(store, number) for number in range(8)))
        assert store.statistics().commits_count - before.commits_count > 2


async def test_who_does_not_come_back_holds_up_nobody_for_long(url: str) -> None:
    async with open_embedded(url) as store:
        await asyncio.gather(*(put_for_a_client(store, key) for key in (b"a", b"b", b"c")))
        before = store.statistics()
        await asyncio.wait_for(put_for_a_client(store, b"a"), 5)
        grant = await asyncio.wait_for(store.grant(10), 5)
        assert await asyncio.wait_for(store.revoke(grant.id), 5)
        assert store.statistics().commits_count > before.commits_count


async def test_a_store_that_waits_for_clients_can_be_closed(url: str) -> None:
    async with open_embedded(url) as store:
        await asyncio.gather(put_for_a_client(store, b"a"), put_for_a_client(store, b"b"))
        late = asyncio.ensure_future(put_for_a_client(store, b"a", b"late"))
        await asyncio.sleep(0)
    await late
    async with open_embedded(url) as store:
        assert (await store.range(b"a")).kvs[0].value == b"late"


async def test_a_failed_commit_stops_writes_and_reads_go_on(
    url: str,
) -> None:
    async with open_embedded(url) as store:
        before = await store.put(b"k", b"acknowledged")
        break_disk(store)
        async with store.watch(b"k") as watch:
            with pytest.raises(Indeterminate):
                await store.put(b"k", b"lost")
            with pytest.raises(StorageFailed, match="disk I/O error"):
                await store.put(b"k", b"refused")
            found = await store.range(b"k")
            assert (found.revision, found.kvs[0].value) == (before.revision, b"acknowledged")
            assert Alarm.STORAGE_FAILED in (await store.status()).alarms
            assert (await store.hash()).revision == before.revision
            with pytest.raises(TimeoutError):  # and nobody hears of what was lost
                await asyncio.wait_for(anext(watch), 0.05)
    async with open_embedded(url) as store:
        assert (await store.range(b"k")).kvs[0].value == b"acknowledged"


async def test_refusing_again_and_again_gathers_nothing(
    url: str,
) -> None:
    async with open_embedded(url) as store:
        break_disk(store)
        with pytest.raises(Indeterminate):
            await store.put(b"k")
        depths = set()
        for _ in range(20):
            with pytest.raises(StorageFailed) as refused:
                await store.put(b"k")
            depths.add(len(refused.traceback))
        assert len(depths) == 1


async def test_a_cancelled_write_harms_nobody_else(url: str) -> None:
    async with open_embedded(url) as store:
        writes = [asyncio.create_task(store.put(b"%d" % i)) for i in range(10)]
        await asyncio.sleep(0)
        for write in writes[::2]:
            write.cancel()
        results = await asyncio.gather(*writes, return_exceptions=True)
        assert [isinstance(result, asyncio.CancelledError) for result in results] == [True, False] * 5
        # It was on its way already, so it is there; what matters is that the others are.
        keys = {kv.key for kv in (await store.range(KeyRange.everything())).kvs}
        assert keys >= {b"%d" % i for i in range(1, 10, 2)}


async def test_a_cancelled_open_leaves_the_data_free(url: str) -> None:
    async with open_embedded(url) as store:
        for i in range(50):
            await store.put(b"%d" % i, b"x" * 1000)

    async def hold() -> None:
        async with open_embedded(url):
            await asyncio.Event().wait()

    for turns in range(5):
        opening = asyncio.create_task(hold())
        for _ in range(turns):
            await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        async with open_embedded(url) as store:
            assert (await store.status()).keys_count == 50


async def test_more_leases_than_one_turn_looks_at_come_up_together() -> None:
    clock = ManualClock()
    async with open_embedded("memory:", clock=clock) as store:
        grants = await asyncio.gather(*(store.grant(5.0) for _ in range(5000)))
        await clock.advance(4.0)
        for grant in grants[:4000]:
            await store.keep_alive(grant.id)
        await clock.advance(1.2)
        await _turns(20)
        assert set(await store.leases()) == {grant.id for grant in grants[:4000]}
        await clock.advance(5.0)
        await _turns(20)
        assert await store.leases() == ()


async def test_a_gap_in_the_history_is_noticed_when_the_store_is_opened(url: str) -> None:
    for i in range(5):
        async with open_embedded(url) as store:  # each time it is closed, there is another row
            await store.put(b"%d" % i)
    path = url.removeprefix("sqlite:")
    with sqlite3.connect(path) as db:
        assert db.execute("DELETE FROM log WHERE revision = 4").rowcount == 1
    db.close()
    with pytest.raises(DataUnreadable, match="revision 4 is missing"):
        async with open_embedded(url):
            pass


async def test_what_compaction_left_over_is_cleaned_after_a_restart(url: str) -> None:
    async with open_embedded(url) as store:
        for i in range(50):
            await store.put(b"k", b"%d" % i)
    # As if the process had ended between the compaction and its clean-up.
    journal = Journal.open(Path(url.removeprefix("sqlite:")))
    batch = Batch()
    batch.compact_revision = 50
    journal.commit(batch)
    journal.close()
    async with open_embedded(url) as store:
        await _until_clean(store)
    journal = Journal.open(Path(url.removeprefix("sqlite:")))
    kept = [kv.mod_revision for versions in journal.read() for kv in versions]
    journal.close()
    assert kept == [50, 51]


async def _turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def _until_clean(store: EmbeddedStore) -> None:
    async with asyncio.timeout(20):
        while store.statistics().garbage_count:  # noqa: ASYNC110  nothing else tells
            await asyncio.sleep(0.001)
        await store.journal_size()  # behind the last slice in the writer's queue


@pytest.mark.timeout(60)
@pytest.mark.parametrize("again", [0, 1, 20_000])
async def test_compaction_ends_however_little_it_frees(url: str, again: int) -> None:
    keys = [b"%05d" % number for number in range(20_000)]
    steps = [keys[at : at + 100] for at in range(0, len(keys), 100)]
    rewritten = [step for step in steps if step[0] < b"%05d" % again]
    async with open_embedded(url) as store:
        for step in steps + rewritten:
            await store.txn(Txn(then=tuple(Put(key, b"v") for key in step)))
        last = await store.put(b"last", b"")
        await store.compact(last.revision)
        await _turns(100)  # what is freed is found in the first twenty
        await _until_clean(store)
        assert (await store.range(KeyRange.everything(), count_only=True)).count == len(keys) + 1


async def test_a_chosen_lease_id_can_be_any_number_but_zero() -> None:
    async with open_embedded("memory:") as store:
        for id in (1, -1, 2**63 - 1, -(2**63)):
            assert (await store.grant(5.0, id=LeaseId(id))).id == id
