"""From a URL to a store: the one way in."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from quoracy.clock import Clock, SystemClock
from quoracy.engines.embedded.disk.journal import Journal
from quoracy.engines.embedded.disk.lock_file import Ownership
from quoracy.engines.embedded.disk.off_loop import off_loop
from quoracy.engines.embedded.disk.writer import InstantWriter, JournalWriter
from quoracy.engines.embedded.engine import EmbeddedStore
from quoracy.engines.embedded.memory.leases import LeaseTable
from quoracy.engines.embedded.memory.state import State
from quoracy.engines.embedded.memory.timeline import SavedTimeline
from quoracy.engines.embedded.retention import Retention
from quoracy.errors import InvalidRequest
from quoracy.store.model import KeyValue
from quoracy.store.rules import Limits

__all__ = ["open_embedded"]


@asynccontextmanager
async def open_embedded(
    url: str,
    *,
    limits: Limits | None = None,
    retention: Retention | None = None,
    clock: Clock | None = None,
) -> AsyncIterator[EmbeddedStore]:
    """Open a store in this process: `memory:` (gone when it is closed) or `sqlite:PATH` (durable).

    Raises `DataInUse` if another process has it, `DataUnreadable` or `FormatUnknown` if the file is
    not one this Quoracy can use.

        async with quoracy.open_embedded("sqlite:/var/lib/app/q.db") as store:
            await store.put(b"greeting", b"hello")
    """
    limits, retention = limits or Limits(), retention or Retention()
    clock = clock or SystemClock()
    scheme, colon, rest = url.partition(":")
    if scheme == "memory" and colon and not rest:
        store = _make_store(
            State(LeaseTable(now=clock.now())), None, limits, retention, clock, [], None
        )
        store.start(InstantWriter(asyncio.get_running_loop()))
        try:
            yield store
        finally:
            await store.close()
    elif scheme == "sqlite" and rest:
        path = _data_path(rest)
        with Ownership.take(path):
            journal, state, garbage, times = await off_loop(
                lambda: _load(path, clock), undo=lambda loaded: loaded[0].close()
            )
            store = _make_store(state, path, limits, retention, clock, garbage, times)
            store.start(JournalWriter(journal, asyncio.get_running_loop(), failed=store.fail))
            try:
                yield store
            finally:
                await store.close()
    else:
        raise InvalidRequest(
            f"{url!r} names no engine. Give memory: or sqlite:PATH, such as sqlite:/var/lib/app/q.db."
        )


def _data_path(text: str) -> Path:
    # Resolved, so that two names of one file are one store to the lock.
    return Path(text).expanduser().resolve()


def _make_store(
    state: State,
    path: Path | None,
    limits: Limits,
    retention: Retention,
    clock: Clock,
    garbage: list[KeyValue],
    times: SavedTimeline | None = None,
) -> EmbeddedStore:
    return EmbeddedStore(
        state,
        path=path,
        limits=limits,
        retention=retention,
        clock=clock,
        # Lease ids double as session ids, which nobody should guess.
        rng=random.SystemRandom(),
        garbage=garbage,
        times=times,
    )


def _load(path: Path, clock: Clock) -> tuple[Journal, State, list[KeyValue], SavedTimeline | None]:
    journal = Journal.open(path)
    try:
        leases = LeaseTable(now=clock.now())
        leases.restore(journal.leases(), now=clock.now())
        state = State(leases)
        garbage = state.load(
            journal.load(),
            revision=journal.revision_meta("base_revision"),
            compact_revision=journal.revision_meta("compact_revision"),
            source=journal.path,
        )
        times = journal.timeline(newest=state.revision)
    except BaseException:
        journal.abandon()
        raise
    return journal, state, garbage, times
