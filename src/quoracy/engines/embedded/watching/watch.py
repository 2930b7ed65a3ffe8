"""The watch that a consumer holds: opening, polling and closing around one `Watcher`."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Protocol, Self

from quoracy.clock import Clock
from quoracy.engines.embedded.watching.hub import Watcher, WatchHub
from quoracy.errors import InvalidRequest, StoreClosed
from quoracy.store.coroutines import PolledWatch
from quoracy.store.model import KeyRange, Revision, WatchBatch

__all__ = ["EmbeddedWatch", "StreamKeeper"]

# History is scanned in pieces of this many revisions, so that others get their turn.
_CATCH_UP_REVISIONS = 2000


class StreamKeeper(Protocol):
    """The store that a watch belongs to: knows all that are open, to end them with itself."""

    def enter_stream(self, stream: EmbeddedWatch) -> None: ...

    def leave_stream(self, stream: EmbeddedWatch) -> None: ...


class EmbeddedWatch(PolledWatch):
    """A `Watch`.  One consumer at a time."""

    def __init__(
        self,
        store: StreamKeeper,
        hub: WatchHub,
        clock: Clock,
        keys: KeyRange,
        *,
        after: int | None = None,
        puts: bool = True,
        deletes: bool = True,
        prev_kv: bool = False,
        progress_s: float | None = None,
    ) -> None:
        if after is not None and after < 0:
            raise InvalidRequest(f"a watch after revision {after} is not possible. Give 0 or more.")
        if progress_s is not None and not progress_s > 0:
            raise InvalidRequest(f"progress_s is {progress_s}. Give more than 0, or none.")
        super().__init__()
        self._store = store
        self._hub = hub
        self._clock = clock
        self._after = after
        self._watcher = Watcher(
            keys,
            next_revision=0,  # known when it is entered
            wake=self._wake,
            puts=puts,
            deletes=deletes,
            prev_kv=prev_kv,
            progress_s=progress_s,
        )
        self._revision = Revision(0)
        self._open = False
        self._store_closed = False

    @property
    def keys(self) -> KeyRange:
        return self._watcher.keys

    @property
    def revision(self) -> Revision:
        return self._revision

    def request_progress(self) -> None:
        self._watcher.progress_wanted = True
        self._wake()

    async def __aenter__(self) -> Self:
        self._store.enter_stream(self)
        self._revision = Revision(self._hub.revision if self._after is None else self._after)
        # Revision 1 is the empty store: nothing happened in it.
        self._watcher.next_revision = max(self._revision + 1, 2)
        self._hub.add(self._watcher, now=self._clock.now())
        self._open = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._open:
            self._open = False
            self._hub.remove(self._watcher)
            self._store.leave_stream(self)

    def poll(self) -> WatchBatch | None:
        watcher = self._watcher
        if not self._open:
            raise InvalidRequest("the watch is not open. Use it inside `async with`.")
        while True:
            if watcher.buffer or watcher.progress_wanted:
                batch = self._hub.take(watcher, now=self._clock.now())
                if batch is not None:
                    self._revision = batch.revision
                    return batch
            if self._store_closed:
                raise StoreClosed
            if watcher.synced:
                return None
            self._hub.catch_up(watcher, revisions_max=_CATCH_UP_REVISIONS)
            if not watcher.buffer and not watcher.synced:
                # There is more to look through, after others had a turn.
                asyncio.get_running_loop().call_soon(self._wake)
                return None

    def store_closed(self) -> None:
        """What was buffered is still delivered; after that the consumer gets `StoreClosed`."""
        self._store_closed = True
        self._wake()
