"""One suite, every engine: `store` is opened on each engine in turn."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from quoracy.clock import ManualClock
from quoracy.store.api import Store
from tests.faults.scale import LONG
from tests.support.engines import ENGINES, Engine, Engines

# Of the loop's own processor time: far more than any request may take in one turn.
_BLOCKED_MAX_S = 1.0


@pytest.fixture(
    params=[
        # What runs only when time is no object is run with the other such tests.
        pytest.param(kind.name, marks=pytest.mark.faults) if kind.is_thorough else kind.name
        for kind in ENGINES
        if LONG or not kind.is_thorough
    ]
)
def engine(request: pytest.FixtureRequest, engines: Engines) -> Engine:
    name: str = request.param
    return engines.get(name)


@pytest.fixture
async def store(engine: Engine) -> AsyncIterator[Store]:
    """A new store on the machine's clock, with the default limits."""
    async with engine.open() as store:
        yield store


@pytest.fixture
async def timed_store(engine: Engine, clock: ManualClock) -> AsyncIterator[Store]:
    """A new store whose time is `clock`."""
    async with engine.open(clock=clock) as store:
        yield store


@pytest.fixture(autouse=True)
async def loop_stays_responsive() -> AsyncIterator[None]:
    """Fail a test during which something held up the event loop."""
    loop = asyncio.get_running_loop()
    late_s = 0.0

    async def beat() -> None:
        nonlocal late_s
        while True:
            due, worked_s = loop.time() + 0.05, time.thread_time()
            await asyncio.sleep(0.05)
            # That others had the processor is not its fault.
            late_s = max(late_s, min(loop.time() - due, time.thread_time() - worked_s))

    heart = asyncio.create_task(beat())
    yield
    heart.cancel()
    await asyncio.wait([heart])
    assert late_s < _BLOCKED_MAX_S, f"the event loop was blocked for {late_s:.2f} s"
