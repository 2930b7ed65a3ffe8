"""History is bounded without anybody asking: by revisions and by age, both settable."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from quoracy.clock import ManualClock
from quoracy.errors import Compacted
from quoracy.store.api import Store
from tests.support.asking import EVERYTHING, contents, eventually, newest
from tests.support.engines import KEEP_ALL, Engine, Retention


def _compacted(store: Store, at_least: int) -> Callable[[], Awaitable[bool]]:
    async def condition() -> bool:
        return (await store.status()).compact_revision >= at_least

    return condition


async def _oldest(store: Store) -> int:
    return (await store.status()).compact_revision


async def test_revisions_beyond_the_bound_go_and_those_within_stay(
    engine: Engine, clock: ManualClock
) -> None:
    retention = Retention(revisions_max=20, age_max_s=None)
    async with engine.open(retention=retention, clock=clock) as store:
        for i in range(100):
            await store.put(b"k", b"%d" % i)
        revision = await newest(store)
        # A little slack is allowed, so that not every write compacts.
        await eventually(_compacted(store, revision - 30), clock)
        await clock.advance(60)
        assert await _oldest(store) <= revision - 20
        for at in range(revision - 20, revision + 1):
            assert await contents(store, at=at) == {b"k": b"%d" % (at - 2)}
        with pytest.raises(Compacted):
            await store.range(b"k", at=revision - 31)


async def test_history_within_the_bound_is_left_alone(engine: Engine, clock: ManualClock) -> None:
    retention = Retention(revisions_max=20, age_max_s=None)
    async with engine.open(retention=retention, clock=clock) as store:
        for i in range(20):
            await store.put(b"k", b"%d" % i)
        await clock.advance(24 * 3600 / 100)
        assert await _oldest(store) == 0
        assert (await store.range(EVERYTHING, at=2)).count == 1


async def test_compaction_by_revisions_goes_on(engine: Engine, clock: ManualClock) -> None:
    retention = Retention(revisions_max=10, age_max_s=None)
    async with engine.open(retention=retention, clock=clock) as store:
        for _ in range(5):
            for i in range(30):
                await store.put(b"k", b"%d" % i)
            revision = await newest(store)
            await eventually(_compacted(store, revision - 15), clock)
            assert await _oldest(store) <= revision - 10


async def test_history_older_than_the_bound_goes_and_younger_stays(
    engine: Engine, clock: ManualClock
) -> None:
    retention = Retention(revisions_max=None, age_max_s=100.0)
    async with engine.open(retention=retention, clock=clock) as store:
        old = (await store.put(b"k", b"old")).revision
        await clock.advance(60)
        young = (await store.put(b"k", b"young")).revision
        await clock.advance(30)
        assert await contents(store, at=old) == {b"k": b"old"}
        await clock.advance(10)
        assert await contents(store, at=young) == {b"k": b"young"}
        # Compaction never goes past what was current within the bound.
        await clock.advance(30)
        assert await _oldest(store) <= old
        await eventually(_compacted(store, young), clock)
        assert clock.now() >= 160
        assert clock.now() <= 190
        assert await contents(store) == {b"k": b"young"}


async def test_age_is_counted_from_when_a_revision_was_superseded_at_the_earliest(
    engine: Engine, clock: ManualClock
) -> None:
    """The state as it was any time less than the bound ago can be read."""
    retention = Retention(revisions_max=None, age_max_s=50.0)
    async with engine.open(retention=retention, clock=clock) as store:
        current: list[tuple[float, int]] = []
        for i in range(40):
            current.append((clock.now(), (await store.put(b"k", b"%d" % i)).revision))
            await clock.advance(5)
            for written_at, revision in current:
                if clock.now() - written_at < 50:
                    assert await contents(store, at=revision) == {b"k": b"%d" % (revision - 2)}
        await eventually(_compacted(store, current[-20][1]))


async def test_without_bounds_nothing_is_forgotten(engine: Engine, clock: ManualClock) -> None:
    async with engine.open(retention=KEEP_ALL, clock=clock) as store:
        for i in range(300):
            await store.put(b"k", b"%d" % i)
        await clock.advance(500)
        assert await _oldest(store) == 0
        assert await contents(store, at=2) == {b"k": b"0"}


async def test_a_watch_that_keeps_up_is_not_disturbed(engine: Engine, clock: ManualClock) -> None:
    retention = Retention(revisions_max=5, age_max_s=None)
    async with (
        engine.open(retention=retention, clock=clock) as store,
        store.watch(EVERYTHING) as stream,
    ):
        for i in range(100):
            await store.put(b"k", b"%d" % i)
            await clock.advance(0.2)
            assert (await anext(stream)).revision == i + 2
        assert await _oldest(store) > 0
