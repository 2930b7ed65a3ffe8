"""Where every recipe is tried."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from quoracy.client.connection import Connection
from quoracy.clock import ManualClock
from tests.support.places import PLACES, Place, open_place


@pytest.fixture(params=PLACES)
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    """A store of each kind in turn."""
    async with open_place(request.param, tmp_path) as place:
        yield place


@pytest.fixture
async def q(place: Place) -> AsyncIterator[Connection]:
    """A connection to it."""
    async with place.connect() as connection:
        yield connection


@pytest.fixture
async def timed(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Place]:
    """A store in memory whose time, and whose connections' time, is the test's."""
    async with open_place("memory", tmp_path, clock) as place:
        yield place
