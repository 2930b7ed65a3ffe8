"""Barrier: what it promises, on every kind of store."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self, cast

import pytest

import quoracy
from quoracy.client.connection import Connection
from quoracy.client.recipes.barrier import Barrier
from quoracy.clock import ManualClock
from quoracy.store.api import Store, Watch
from quoracy.store.model import Keys, WatchBatch
from tests.support.asking import eventually, turns
from tests.support.cancelling import cancelled_everywhere
from tests.support.meddling import Meddling
from tests.support.places import Place


class Away(Meddling):
    """A store that cannot be read or watched for a while, as behind a network that is down."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.refused = 0
        self._gone = asyncio.Event()
        self.before_range = self._refuse

    def go(self) -> None:
        self._gone.set()

    def come_back(self) -> None:
        self._gone = asyncio.Event()

    def watch(self, keys: Keys, **options: Any) -> Watch:
        return cast("Watch", _Cut(super().watch(keys, **options), self, self._gone))

    async def _refuse(self, _: object) -> None:
        if self._gone.is_set():
            self.refused += 1
            raise quoracy.Unavailable("no way to the store.")


class _Cut:
    """A watch that is over as soon as the way to its store is."""

    def __init__(self, stream: Watch, away: Away, gone: asyncio.Event) -> None:
        self._stream, self._away, self._gone = stream, away, gone

    async def __aenter__(self) -> Self:
        await self._away._refuse(None)
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stream.__aexit__(kind, error, trace)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> WatchBatch:
        batch, cut = (
            asyncio.ensure_future(anext(self._stream)),
            asyncio.ensure_future(self._gone.wait()),
        )
        try:
            await asyncio.wait([batch, cut], return_when=asyncio.FIRST_COMPLETED)
            if cut.done():
                await self._away._refuse(None)
            return await batch
        finally:
            batch.cancel()
            cut.cancel()
            await asyncio.gather(batch, cut, return_exceptions=True)


async def test_lowered_barrier_lets_everyone_pass_and_a_raised_one_nobody(place: Place) -> None:
    async with AsyncExitStack() as stack:
        connections = [await stack.enter_async_context(place.connect()) for _ in range(3)]
        gates = [Barrier(q, "gate") for q in connections]
        await gates[0].wait(timeout=0)
        assert await gates[0].raise_()
        assert await gates[1].is_raised()
        waiting = [asyncio.create_task(gate.wait()) for gate in gates]
        with pytest.raises(quoracy.TimedOut):
            await gates[2].wait(timeout=0.05)
        with pytest.raises(quoracy.TimedOut):
            await gates[2].wait(timeout=0)
        assert not any(task.done() for task in waiting)
        assert await gates[2].lower()
        async with asyncio.timeout(20):
            await asyncio.gather(*waiting)
        assert not await gates[1].is_raised()


async def test_raising_and_lowering_twice_says_that_it_was_so_already(q: Connection) -> None:
    gate = Barrier(q, "gate")
    assert [await gate.raise_(), await gate.raise_()] == [True, False]
    assert [await gate.lower(), await gate.lower()] == [True, False]


async def test_who_waits_passes_also_if_it_is_raised_again_at_once(place: Place) -> None:
    async with place.connect() as one, place.connect() as other:
        gate = Barrier(one, "gate")
        await gate.raise_()
        waiting = asyncio.create_task(Barrier(other, "gate").wait())
        with pytest.raises(quoracy.TimedOut):  # by then the other has read, too
            await Barrier(other, "gate").wait(timeout=0.05)
        await gate.lower()
        await gate.raise_()
        async with asyncio.timeout(20):
            await waiting


async def test_barrier_raised_while_alive_falls_with_the_session(place: Place) -> None:
    async with place.connect() as other:
        async with place.connect() as one:
            assert await Barrier(one, "gate").raise_(while_alive=True)
            waiting = asyncio.create_task(Barrier(other, "gate").wait())
            with pytest.raises(quoracy.TimedOut):
                await Barrier(other, "gate").wait(timeout=0.02)
        async with asyncio.timeout(20):
            await waiting
        async with place.connect() as one:
            await Barrier(one, "gate").raise_()
        assert await Barrier(other, "gate").is_raised()


async def test_raising_while_alive_in_a_dead_session_raises_session_lost(place: Place) -> None:
    async with place.connect() as q:
        await place.store.revoke((await q.session()).id)
        with pytest.raises(quoracy.SessionLost, match="not raised"):
            await Barrier(q, "gate").raise_(while_alive=True)
        assert not await Barrier(q, "gate").is_raised()


async def test_cancelled_wait_leaves_nothing(place: Place) -> None:
    async with place.connect() as q:
        gate = Barrier(q, "gate")
        await gate.raise_()

        async def wait() -> None:
            with pytest.raises(quoracy.TimedOut):
                await gate.wait(timeout=0.01)

        async for _ in cancelled_everywhere(wait):
            assert await gate.is_raised()
        await gate.lower()

    async def nothing_left() -> bool:
        return not (await place.store.range(place.corner)).kvs

    await eventually(nothing_left)


async def test_wait_outlives_a_store_that_is_away_while_history_is_compacted(
    timed: Place, clock: ManualClock
) -> None:
    away = Away(timed.store)
    async with quoracy.connect(away.as_store, clock=clock, namespace=timed.namespace) as q:
        gate = Barrier(q, "gate")
        await gate.raise_()
        waiting = asyncio.create_task(gate.wait(timeout=60))
        await turns()
        away.go()
        await turns()
        await timed.store.delete(timed.key("gate"))
        await timed.store.compact((await timed.store.put(b"other")).revision)
        await clock.advance(5)
        assert not waiting.done()
        away.come_back()
        await clock.advance(5)
        async with asyncio.timeout(20):
            await waiting
    assert away.refused > 2


async def test_wait_goes_on_where_it_was_when_the_store_is_back(
    timed: Place, clock: ManualClock
) -> None:
    away = Away(timed.store)
    async with quoracy.connect(away.as_store, clock=clock, namespace=timed.namespace) as q:
        gate = Barrier(q, "gate")
        await gate.raise_()
        waiting = asyncio.create_task(gate.wait(timeout=60))
        await turns()
        away.go()
        await turns()
        await timed.store.delete(timed.key("gate"))
        await timed.store.put(timed.key("gate"))  # raised again: but it was down
        away.come_back()
        await clock.advance(5)
        async with asyncio.timeout(20):
            await waiting


async def test_wait_ends_at_its_time_and_not_before(timed: Place, clock: ManualClock) -> None:
    async with timed.connect() as q:
        gate = Barrier(q, "gate")
        await gate.raise_()
        waiting = asyncio.create_task(gate.wait(timeout=30))
        await clock.advance(29.9)
        assert not waiting.done()
        await clock.advance(0.2)
        with pytest.raises(quoracy.TimedOut, match="30 s"):
            await waiting
