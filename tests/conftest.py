"""Fixtures shared by every kind of test: the engines, and the clock a test owns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from quorate.clock import ManualClock
from tests.support.engines import Engines


@pytest.fixture
def engines(tmp_path: Path) -> Iterator[Engines]:
    with Engines(tmp_path) as engines:
        yield engines


@pytest.fixture
def clock() -> ManualClock:
    """A clock that stands still until the test moves it."""
    return ManualClock()
