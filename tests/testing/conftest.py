"""Both places that users can test against, on a clock that stands still, and faults."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from quoracy.testing import Faults, Memory, Server, VirtualClock, memory, server

PLACES = ("memory", "server")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def faults() -> Iterator[Faults]:
    with Faults() as faults:
        yield faults


@pytest.fixture(params=PLACES)
async def place(request: pytest.FixtureRequest, clock: VirtualClock) -> AsyncIterator[Memory | Server]:
    if request.param == "memory":
        async with memory(clock=clock) as local:
            yield local
    else:
        async with server(clock=clock) as remote:
            yield remote
