"""Waiting for the front of a queue inside the store: told in the turn of the commit, never wrongly."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quoracy.engines.embedded.engine import EmbeddedStore
from quoracy.engines.opening import open_embedded
from quoracy.errors import StoreClosed
from quoracy.store import contention
from quoracy.store.api import Store
from quoracy.store.completion import Completion
from quoracy.store.contention import Place, leaving
from quoracy.store.model import Revision, TxnResult, WaitFirst

NAME = b"jobs/nightly"


async def joined(store: Store) -> Place:
    return await contention.join(store, NAME, (await store.grant(3600)).id)


class Wait(Completion):
    """Notes how it ended."""

    def __init__(self, told: list[Any], name: str = "") -> None:
        super().__init__()
        self._told, self._name = told, name

    def done(self, result: Any, error: BaseException | None) -> None:
        del error
        self._told.append((self._name, result) if self._name else result)


class Failing(Completion):
    def done(self, result: Any, error: BaseException | None) -> None:
        raise ValueError("of the test")


def wait_of(place: Place) -> WaitFirst:
    return WaitFirst(place.name, place.key, place.token)


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_the_next_one_is_told_before_the_release_is_answered() -> None:
    async with open_embedded("memory:") as store:
        first, second = await joined(store), await joined(store)
        told: list[tuple[str, object]] = []
        store.read(wait_of(second), Wait(told, "next"))
        await turns()
        assert told == []
        store.submit(leaving(first), Wait(told, "released"))
        while not told:  # noqa: ASYNC110  nothing else tells
            await asyncio.sleep(0)
        # Both in the one turn of the commit: nothing else ran in between.
        assert [name for name, _ in told] == ["next", "released"]
        (_, seen), (_, released) = told
        assert isinstance(released, TxnResult)
        assert seen == released.revision


async def test_a_key_that_is_the_first_already_ends_its_wait_at_once() -> None:
    async with open_embedded("memory:") as store:
        first = await joined(store)
        told: list[object] = []
        store.read(wait_of(first), Wait(told))
        assert told == [first.revision]


async def test_a_wait_that_is_abandoned_ends_once_and_watches_nobody() -> None:
    async with open_embedded("memory:") as store:
        first, second = await joined(store), await joined(store)
        told: list[object] = []
        wait = Wait(told)
        store.read(wait_of(second), wait)
        assert store.statistics().watchers_count == 1
        wait.abandon()
        wait.abandon()
        assert store.statistics().watchers_count == 0
        await contention.leave(store, first)
        await turns()
        assert told == [None]


async def test_the_end_of_the_store_ends_the_waits() -> None:
    async with open_embedded("memory:") as store:
        await joined(store)
        second = await joined(store)
        waiting = asyncio.create_task(store.wait_first(NAME, second.key, second.token))
        await turns()
    with pytest.raises(StoreClosed):
        await waiting


async def test_one_who_fails_when_told_does_not_keep_the_others_from_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with open_embedded("memory:") as store:
        first, second = await joined(store), await joined(store)
        told: list[object] = []

        store.read(wait_of(second), Failing())
        store.read(wait_of(second), Wait(told))
        await turns()
        left_at = await contention.leave(store, first)
        assert told == [left_at]
        assert "of the test" in caplog.text


class Looking:
    """The same store, on which who waits has to watch and read for itself."""

    def __init__(self, store: EmbeddedStore) -> None:
        self._store = store

    async def wait_first(self, name: bytes, key: bytes, token: int) -> Revision | None:
        return await contention.wait_by_watching(cast("Store", self), name, key, token)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


# Who comes (True) or, of those who are there, who goes.
_STEPS = st.lists(st.booleans() | st.integers(0, 5), min_size=1, max_size=25)


@settings(max_examples=50, deadline=None)
@given(_STEPS)
def test_it_tells_the_same_as_watching_and_reading_does(steps: list[bool | int]) -> None:
    async def main() -> None:
        async with open_embedded("memory:") as store:
            looking = cast("Store", Looking(store))
            queue: list[tuple[Place, asyncio.Task[int | None], asyncio.Task[int | None]]] = []
            gone: list[asyncio.Task[int | None]] = []
            for step in steps:
                if isinstance(step, bool):
                    place = await joined(store)
                    ways: list[asyncio.Task[int | None]] = [
                        asyncio.create_task(
                            contention.wait_by_watching(each, NAME, place.key, place.token)
                        )
                        for each in (cast("Store", store), looking)
                    ]
                    queue.append((place, ways[0], ways[1]))
                elif queue:
                    place, *over = queue.pop(step % len(queue))
                    gone += over
                    await contention.leave(store, place)
                await turns(20)
                for index, (_, told, found) in enumerate(queue):
                    assert told.done() == found.done() == (index == 0)
                    if told.done():
                        assert told.result() == found.result()
            for task in [*gone, *(way for _, *both in queue for way in both)]:
                task.cancel()
                await asyncio.wait([task])

    asyncio.run(main())
