"""Keeping a lease on a clock the test owns: it is given up before the server can end it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from quoracy.client.held import wait_deleted
from quoracy.client.session import Session, keep_session
from quoracy.clock import ManualClock
from quoracy.engines.opening import open_embedded
from quoracy.errors import Unavailable
from quoracy.store.contention import join
from tests.support.unreliable_store import Unreliable


@pytest.fixture
async def store(clock: ManualClock) -> AsyncIterator[Unreliable]:
    async with open_embedded("memory:", clock=clock) as store:
        yield Unreliable(store)


async def test_lease_is_renewed_as_long_as_it_is_answered(
    store: Unreliable, clock: ManualClock
) -> None:
    async with keep_session(store, clock, ttl_s=10.0) as session:  # type: ignore[arg-type]
        for _ in range(20):
            await clock.advance(5.0)
        assert not session.lost.done()
        assert (await store._store.time_to_live(session.id)).remaining_s > 0
        assert store.asked >= 25
    assert await store._store.leases() == ()


@pytest.mark.parametrize("how", ["refuses", "hangs"])
async def test_lost_while_the_server_still_holds_it(
    store: Unreliable, clock: ManualClock, how: str
) -> None:
    async with keep_session(store, clock, ttl_s=10.0, reserve_s=2.0) as session:  # type: ignore[arg-type]
        await clock.advance(4.0)
        setattr(store, how, True)
        while not session.lost.done():
            assert clock.now() < 20
            await clock.advance(0.1)
        # Renewed at 3.3; given up two seconds, and the slack, before ten seconds after that.
        assert (await store._store.time_to_live(session.id)).remaining_s >= 2.0
        assert "could not be renewed in time" in await session.lost


async def test_trouble_that_passes_is_forgotten(store: Unreliable, clock: ManualClock) -> None:
    async with keep_session(store, clock, ttl_s=10.0, reserve_s=2.0) as session:  # type: ignore[arg-type]
        for _ in range(5):
            store.refuses = True
            await clock.advance(5.0)
            store.refuses = False
            await clock.advance(5.0)
        assert not session.lost.done()


async def test_revoked_lease_is_lost_at_the_next_renewal(store: Unreliable, clock: ManualClock) -> None:
    async with keep_session(store, clock, ttl_s=10.0) as session:  # type: ignore[arg-type]
        await store._store.revoke(session.id)
        await clock.advance(3.4)
        assert "ended or was revoked" in await session.lost


async def test_process_that_was_stopped_knows_at_once(store: Unreliable, clock: ManualClock) -> None:
    async with keep_session(store, clock, ttl_s=10.0, reserve_s=2.0) as session:  # type: ignore[arg-type]
        store.hangs = True
        clock.jump(60.0)
        await clock.advance(0.0)
        assert "could not be renewed in time" in await session.lost


async def test_lease_that_cannot_be_revoked_says_so(store: Unreliable, clock: ManualClock) -> None:
    async def refuse(lease: int) -> int:
        raise Unavailable("no server at 127.0.0.1:1.")

    session: Session
    async with keep_session(store, clock, ttl_s=10.0) as session:  # type: ignore[arg-type]
        store.revoke = refuse  # type: ignore[attr-defined]
    assert isinstance(session.revoke_error, Unavailable)


async def test_deleted_key_is_noticed(store: Unreliable, clock: ManualClock) -> None:
    async with keep_session(store, clock, ttl_s=10.0) as session:  # type: ignore[arg-type]
        place = await join(store._store, b"jobs", session.id)
        taken = asyncio.ensure_future(wait_deleted(store._store, place.key, place.token, clock))
        await clock.advance(0.1)
        assert not taken.done()
        await store._store.delete(place.key)
        assert "was deleted" in await taken
