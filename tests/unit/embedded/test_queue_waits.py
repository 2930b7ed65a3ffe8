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
from quoracy.store.contention import Place, leaving
from quoracy.store.legacy import TellsQueues
from quoracy.store.model import Revision

NAME = b"jobs/nightly"


async def joined(store: Store) -> Place:
    return await contention.join(store, NAME, (await store.grant(3600)).id)


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_the_next_one_is_told_before_the_release_is_answered() -> None:
    async with open_embedded("memory:") as store:
        assert isinstance(store, TellsQueues)
        first, second = await joined(store), await joined(store)
        told: list[tuple[str, object]] = []
        store.when_oldest(NAME, second.key, second.token, lambda seen, _: told.append(("next", seen)))
        await turns()
        assert told == []
        answered = asyncio.Event()

        def released(result: Any, _: BaseException | None) -> None:
            told.append(("released", result.revision))
            answered.set()

        assert store.begin(leaving(first), released)
        await answered.wait()
        # Both in the one turn of the commit: nothing else ran in between.
        assert [what for what, _ in told] == ["next", "released"]
        assert told[0][1] == told[1][1]


async def test_who_is_first_already_is_told_after_the_call_has_returned() -> None:
    async with open_embedded("memory:") as store:
        first = await joined(store)
        told: list[object] = []
        store.when_oldest(NAME, first.key, first.token, lambda seen, _: told.append(seen))
        assert told == []
        await turns()
        assert told == [first.revision]


async def test_a_wait_that_is_given_up_is_not_told_and_watches_nobody() -> None:
    async with open_embedded("memory:") as store:
        first, second = await joined(store), await joined(store)
        told: list[object] = []

        def begin(place: Place) -> Any:
            return store.when_oldest(NAME, place.key, place.token, lambda *seen: told.append(seen))

        begin(first)()  # before it was looked at
        give_up = begin(second)
        await turns()
        assert store.statistics().watchers_count == 1
        give_up()
        give_up()
        assert store.statistics().watchers_count == 0
        await contention.leave(store, first)
        await turns()
        assert told == []


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

        def fails(*_: object) -> None:
            raise ValueError("of the test")

        store.when_oldest(NAME, second.key, second.token, fails)
        store.when_oldest(NAME, second.key, second.token, lambda seen, _: told.append(seen))
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
