"""The engines the conformance suite judges, and what each declares it lacks.

A test asks `engine` for a store and never knows which one it got.  An engine that cannot do something
says so here; a test that needs it skips on that declaration and on nothing else, so an engine that
loses a feature turns red.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Self

import msgspec
import pytest

from quoracy.clock import Clock
from quoracy.engines.embedded.retention import Retention
from quoracy.engines.etcd.opening import open_etcd
from quoracy.engines.opening import open_embedded
from quoracy.faces.etcd.services.member import Identity
from quoracy.faces.etcd.serving.server import serve_etcd
from quoracy.remote.store import open_remote
from quoracy.remote.urls import Address, Target
from quoracy.store.api import Store
from quoracy.store.rules import Limits
from tests.support.etcd_pool import etcd_pool
from tests.support.spread_store import SpreadStore

__all__ = ["ENGINES", "KEEP_ALL", "Capability", "Engine", "EngineKind", "Engines", "Retention"]

KEEP_ALL = Retention(revisions_max=None, age_max_s=None)


class Capability(Enum):
    """What a test may need beyond the contract itself."""

    REOPEN = "the contents are back when the same place is opened again"
    CLOCK = "time passes on a clock that the test owns"
    LIMITS = "the test chooses the limits"
    RETENTION = "the test chooses how much history is kept"
    QUICK_REPLAY = "history is replayed at once, so that a test may want that for every single event"
    FORGETS_AT_ONCE = "what was compacted is gone at once, for watches that lag behind it, too"
    ORDER = "writes take effect in the call, one after the other, and end in that order"
    EVENTS_FIRST = "a write is done when its event is in every watch of the store"
    COMPACTED_DELETES = "a watch from the compaction revision is told of keys deleted in it"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a test opens a store, and how."""

    path: Path
    limits: Limits
    retention: Retention
    clock: Clock | None
    servers: dict[Path, int]
    ends: contextlib.ExitStack


Opener = Callable[[Place], AbstractAsyncContextManager[Store]]


@dataclass(frozen=True, slots=True)
class EngineKind:
    """An engine by name: how it is opened at a place, and what it lacks."""

    name: str
    open: Opener
    lacks: frozenset[Capability] = field(default_factory=frozenset)
    is_thorough: bool = False  # judged only when time is no object


@asynccontextmanager
async def _memory(place: Place) -> AsyncIterator[Store]:
    async with open_embedded(
        "memory:", limits=place.limits, retention=place.retention, clock=place.clock
    ) as store:
        yield store


@asynccontextmanager
async def _sqlite(place: Place) -> AsyncIterator[Store]:
    async with open_embedded(
        f"sqlite:{place.path}.db", limits=place.limits, retention=place.retention, clock=place.clock
    ) as store:
        yield store


@asynccontextmanager
async def _remote(place: Place) -> AsyncIterator[Store]:
    """Quoracy's own client on Quoracy's own server, both in this process."""
    # Named as TCP, as the server's own is, or asyncio would leave Nagle's algorithm on.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        async with (
            _memory(place) as store,
            serve_etcd(
                store,
                listener,
                host="127.0.0.1",
                identity=Identity(cluster_id=1, member_id=2),
                limits=place.limits,
            ),
            open_remote(Target((Address("127.0.0.1", port),)), limits=place.limits) as remote,
        ):
            yield remote


def _on_etcd(version: str) -> Opener:
    @asynccontextmanager
    async def opened(place: Place) -> AsyncIterator[Store]:
        target = await _etcd_at(place, version)
        async with open_remote(target, limits=_here_only(place.limits)) as store:
            yield store

    return opened


def _here_only(limits: Limits) -> Limits | None:
    """Of the limits of an etcd, which are its own, those that are about the client."""
    if limits == Limits():
        return None
    return msgspec.structs.replace(
        limits, request_bytes_max=2**62, key_bytes_max=2**62, txn_ops_max=2**62, lease_ttl_min_s=0.0
    )


def _replica_of_etcd(version: str) -> Opener:
    """A node of a cell: the engine on an etcd."""

    @asynccontextmanager
    async def opened(place: Place) -> AsyncIterator[Store]:
        target = await _etcd_at(place, version)
        async with open_etcd(target, limits=_here_only(place.limits) or place.limits) as store:
            yield store

    return opened


def _cell_on_etcd(version: str) -> Opener:
    """Three nodes of a cell, each request to the next."""

    @asynccontextmanager
    async def opened(place: Place) -> AsyncIterator[Store]:
        target = await _etcd_at(place, version)
        limits = _here_only(place.limits) or place.limits
        async with (
            open_etcd(target, limits=limits) as one,
            open_etcd(target, limits=limits) as two,
            open_etcd(target, limits=limits) as three,
        ):
            yield SpreadStore((one, two, three))

    return opened


async def _etcd_at(place: Place, version: str) -> Target:
    pool = etcd_pool(version)
    if pool is None:
        pytest.skip(f"etcd {version} is not installed")
    if place.path not in place.servers:
        port, end = await asyncio.to_thread(pool.take)
        place.servers[place.path] = port
        place.ends.push(end)
    return Target((Address("127.0.0.1", place.servers[place.path]),))


# etcd looks ten times a second for watches that need history.
_ETCD_LACKS = frozenset(
    {
        Capability.CLOCK,
        Capability.LIMITS,
        Capability.RETENTION,
        Capability.QUICK_REPLAY,
        Capability.ORDER,
        Capability.EVENTS_FIRST,
        Capability.COMPACTED_DELETES,
    }
)

# What a replica keeps itself, it replays at once; but what it keeps is not for a test to choose.
_REPLICA_LACKS = _ETCD_LACKS - {Capability.QUICK_REPLAY, Capability.EVENTS_FIRST}

ENGINES = (
    EngineKind("memory", _memory, lacks=frozenset({Capability.REOPEN})),
    EngineKind("sqlite", _sqlite),
    # Its store's time is the test's, but the client's is the machine's: progress after a while, say.
    EngineKind(
        "remote",
        _remote,
        lacks=frozenset(
            {Capability.REOPEN, Capability.CLOCK, Capability.ORDER, Capability.EVENTS_FIRST}
        ),
    ),
    # On an etcd: what the nodes of a cell are made of.  With requests going round three nodes, and the
    # client alone on each etcd, where time is no object.
    EngineKind("etcd", _replica_of_etcd("3.4"), lacks=_REPLICA_LACKS),
    EngineKind("remote-etcd35", _on_etcd("3.5"), lacks=_ETCD_LACKS, is_thorough=True),
    EngineKind("remote-etcd34", _on_etcd("3.4"), lacks=_ETCD_LACKS, is_thorough=True),
    EngineKind(
        "cell",
        _cell_on_etcd("3.4"),
        # A node that another did not tell yet goes on telling what it has.
        lacks=_REPLICA_LACKS | {Capability.FORGETS_AT_ONCE, Capability.EVENTS_FIRST},
        is_thorough=True,
    ),
)


def _about_buffers_only(limits: Limits) -> bool:
    default = Limits()
    return default == msgspec.structs.replace(
        limits,
        watch_buffer_events_max=default.watch_buffer_events_max,
        watch_buffer_bytes_max=default.watch_buffer_bytes_max,
    )


class Engine:
    """One engine in one test's directory: opens stores, each at a named place."""

    def __init__(
        self,
        kind: EngineKind,
        directory: Path,
        servers: dict[Path, int],
        ends: contextlib.ExitStack,
    ) -> None:
        self.name = kind.name
        self._kind = kind
        self._directory = directory
        self._servers, self._ends = servers, ends

    def lacks(self, capability: Capability) -> bool:
        return capability in self._kind.lacks

    def needs(self, capability: Capability) -> None:
        """Skip the running test if this engine declares that it lacks the capability."""
        if self.lacks(capability):
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
        # What is kept for a watcher that does not read, everyone can choose.
        if limits is not None and not _about_buffers_only(limits):
            self.needs(Capability.LIMITS)
        if retention is not None:
            self.needs(Capability.RETENTION)
        if clock is not None:
            self.needs(Capability.CLOCK)
        return self._kind.open(
            Place(
                self._directory / place,
                limits or Limits(),
                retention or Retention(),
                clock,
                self._servers,
                self._ends,
            )
        )


class Engines:
    """Every engine there is, for one test; leaving it ends the servers the test had."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._servers: dict[Path, int] = {}
        self._ends = contextlib.ExitStack()

    def get(self, name: str) -> Engine:
        kinds = {kind.name: kind for kind in ENGINES}
        return Engine(kinds[name], self._directory, self._servers, self._ends)

    def open(self, name: str) -> AbstractAsyncContextManager[Store]:
        return self.get(name).open()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()
