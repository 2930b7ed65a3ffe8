"""The engines the conformance suite judges, and what each declares it lacks.

A test asks `engine` for a store and never knows which one it got.  An engine that cannot do something
says so here; a test that needs it skips on that declaration and on nothing else, so an engine that
loses a feature turns red.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

import pytest

from quorate.clock import Clock
from quorate.engines.embedded.retention import Retention
from quorate.engines.opening import open_store
from quorate.store.api import Store
from quorate.store.rules import Limits

__all__ = ["ENGINES", "KEEP_ALL", "Capability", "Engine", "EngineKind", "Engines", "Retention"]

KEEP_ALL = Retention(revisions_max=None, age_max_s=None)


class Capability(Enum):
    """What a test may need beyond the contract itself."""

    REOPEN = "the contents are back when the same place is opened again"
    CLOCK = "time passes on a clock that the test owns"
    LIMITS = "the test chooses the limits"
    RETENTION = "the test chooses how much history is kept"


@dataclass(frozen=True, slots=True)
class EngineKind:
    """An engine by name: the URL of its data in a place, and what it lacks."""

    name: str
    url: Callable[[Path], str]
    lacks: frozenset[Capability] = field(default_factory=frozenset)


ENGINES = (
    EngineKind("memory", lambda place: "memory:", lacks=frozenset({Capability.REOPEN})),
    EngineKind("sqlite", lambda place: f"sqlite:{place}.db"),
)


class Engine:
    """One engine in one test's directory: opens stores, each at a named place."""

    def __init__(self, kind: EngineKind, directory: Path) -> None:
        self.name = kind.name
        self._kind = kind
        self._directory = directory

    def needs(self, capability: Capability) -> None:
        """Skip the running test if this engine declares that it lacks the capability."""
        if capability in self._kind.lacks:
            pytest.skip(f"{self.name} declares it lacks: {capability.value}")

    def open(
        self,
        place: str = "store",
        *,
        limits: Limits | None = None,
        retention: Retention | None = None,
        clock: Clock | None = None,
    ) -> AbstractAsyncContextManager[Store]:
        """Open the store at `place`: a new one, or the one that was closed there."""
        if limits is not None:
            self.needs(Capability.LIMITS)
        if retention is not None:
            self.needs(Capability.RETENTION)
        if clock is not None:
            self.needs(Capability.CLOCK)
        return self._open(place, limits or Limits(), retention or Retention(), clock)

    @asynccontextmanager
    async def _open(
        self, place: str, limits: Limits, retention: Retention, clock: Clock | None
    ) -> AsyncIterator[Store]:
        url = self._kind.url(self._directory / place)
        async with open_store(url, limits=limits, retention=retention, clock=clock) as store:
            yield store


class Engines:
    """Every engine there is, for one test."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def get(self, name: str) -> Engine:
        kinds = {kind.name: kind for kind in ENGINES}
        return Engine(kinds[name], self._directory)

    def open(self, name: str) -> AbstractAsyncContextManager[Store]:
        return self.get(name).open()
