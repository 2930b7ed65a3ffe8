"""One watch, as its consumer sees it: a batch for each revision, however a server cuts what it sends.

Invariants
    * `received` is the revision up to which everything is in the buffer or delivered.  A watch that is
      made anew, after a lost connection or a pause, goes on right behind it: no gap, nothing twice.
    * A batch is a whole revision.  Servers put several into one message, or one into several fragments.
    * The buffer is bounded.  When it is full the watch is cancelled at the server, so that no
      other watch waits for this consumer, and made anew from history when the consumer has caught up.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from quoracy.errors import InvalidRequest, StoreClosed
from quoracy.remote.translate import by_revision, watch_request
from quoracy.store.coroutines import PolledWatch
from quoracy.store.model import Event, EventKind, KeyRange, Keys, Revision, WatchBatch
from quoracy.store.rules import as_range
from quoracy.wire.etcd import rpc

if TYPE_CHECKING:
    from quoracy.remote.watch_hub import WatchHub

__all__ = ["RemoteWatch"]

# What an event takes besides its bytes, roughly.
_EVENT_BYTES = 200


class RemoteWatch(PolledWatch):
    """A `Watch` over the network."""

    def __init__(
        self,
        hub: WatchHub,
        keys: Keys,
        *,
        after: int | None = None,
        puts: bool = True,
        deletes: bool = True,
        prev_kv: bool = False,
        progress_s: float | None = None,
    ) -> None:
        super().__init__()
        self._hub = hub
        self._keys, self._range = keys, as_range(keys)
        self._asked_after = after
        self._puts, self._deletes, self._prev_kv = puts, deletes, prev_kv
        self._progress_s = progress_s
        self._progress_timer: asyncio.TimerHandle | None = None
        self._after = self._revision = self.received = 0
        self._buffer: deque[tuple[WatchBatch, int]] = deque()
        self._buffered_events = self._buffered_bytes = 0
        self._open: tuple[int, list[Event]] | None = None  # a revision of which more may come
        # Once everything up to the first is received, everything up to the second is.
        self._proof: tuple[int, int] | None = None
        self._error: Exception | None = None
        self._entered: asyncio.Future[None] | None = None
        # Of the hub: the number the server gave it, which of its creations counts, whether it rests.
        self.id: int | None = None
        self.epoch = 0
        self.resting = False
        self.wants_progress = False

    # -- for the consumer ---------------------------------------------------------------------

    @property
    def keys(self) -> KeyRange:
        return self._range

    @property
    def revision(self) -> Revision:
        return Revision(self._revision)

    def request_progress(self) -> None:
        self.wants_progress = True
        self._hub.ask_progress()

    async def __aenter__(self) -> Self:
        if self._entered is not None:
            raise InvalidRequest("a watch can be entered once. Make another with store.watch().")
        after = self._asked_after
        if after is not None and after < 0:
            raise InvalidRequest(
                f"after is {after}. Give a revision, 0 for everything, or None for now."
            )
        self._entered = asyncio.get_running_loop().create_future()
        if after is None:
            after = await self._hub.newest_revision(self._keys)
        self._after = self._revision = self.received = after
        await self._hub.enter(self, self._entered)
        self._expect_batch()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._progress_timer is not None:
            self._progress_timer.cancel()
        self._hub.leave(self)
        if self._error is None:
            self._error = StoreClosed() if self._hub.closed else InvalidRequest("the watch was left.")
            self._wake()

    def poll(self) -> WatchBatch | None:
        if not self._buffer:
            if self._error is not None:
                raise self._error
            if self._entered is None:
                raise InvalidRequest("the watch is not open. Use it inside `async with`.")
            return None
        batch, size = self._buffer.popleft()
        self._buffered_events -= len(batch.events)
        self._buffered_bytes -= size
        self._revision = batch.revision
        if self.resting and self._error is None and self._has_caught_up():
            self._hub.go_on(self)
        self._expect_batch()
        return batch

    # -- for the hub --------------------------------------------------------------------------

    def request(self) -> rpc.WatchCreateRequest:
        """How to go on where it is."""
        self._open = None
        return watch_request(
            self._keys,
            after=self.received,
            puts=self._puts,
            deletes=self._deletes,
            prev_kv=self._prev_kv,
        )

    def on_created(self) -> None:
        if self._entered is not None and not self._entered.done():
            self._entered.set_result(None)

    def on_events(self, told: list[Event], *, fragment: bool) -> None:
        """`fragment`: of the last revision there may be more to come."""
        if len(told) == 1 and not fragment and self._open is None:  # nearly always
            self._take(told[0].kv.mod_revision, told)
            return
        for revision, events in by_revision(told):
            if self._open is not None and self._open[0] == revision:
                self._open[1].extend(events)
                continue
            self._take_open()
            if self.resting:
                return
            self._open = (revision, events)
        if not fragment:
            self._take_open()

    def on_progress(self, revision: int) -> None:
        """The server says that everything up to `revision` was sent."""
        if revision < self._after:
            return  # it starts in the future, and gets nothing earlier
        self.received = max(self.received, revision)
        if self.wants_progress:
            self.wants_progress = False
            self._put(WatchBatch(Revision(self.received)))
        elif not self._buffer:
            self._revision = self.received

    def on_proof(self, revision: int, *, owed: int) -> None:
        """`owed` is the last revision up to `revision` with an event of this watch."""
        if self.received >= owed:
            self._proof = None
            self.on_progress(revision)
        else:
            self._proof = (owed, revision)

    def matches(self, event: Event) -> bool:
        wanted = self._puts if event.kind is EventKind.PUT else self._deletes
        return wanted and self._range.contains(event.kv.key)

    def fail(self, error: Exception) -> None:
        """End it: what is in the buffer is still delivered, then comes the error."""
        if self._error is None:
            self._error = error
            self._wake()
        if self._entered is not None and not self._entered.done():
            self._entered.set_exception(error)
            self._entered.exception()  # the caller that entered may have given up

    @property
    def is_entering(self) -> bool:
        return self._entered is not None and not self._entered.done()

    # -- the buffer ---------------------------------------------------------------------------

    def _take_open(self) -> None:
        if self._open is None:
            return
        revision, events = self._open
        self._open = None
        self._take(revision, events)

    def _take(self, revision: int, events: list[Event]) -> None:
        if revision <= self.received:
            return
        self.received = revision
        self._put(WatchBatch(Revision(revision), tuple(events)))
        if self._proof is not None and revision >= self._proof[0]:
            self.on_proof(self._proof[1], owed=self._proof[0])

    def _put(self, batch: WatchBatch) -> None:
        size = _size_of(batch.events)
        self._buffer.append((batch, size))
        self._buffered_events += len(batch.events)
        self._buffered_bytes += size
        self._wake()
        if not self.resting and (
            self._buffered_events >= self._hub.buffer_events_max
            or self._buffered_bytes >= self._hub.buffer_bytes_max
        ):
            self._hub.rest(self)

    def _has_caught_up(self) -> bool:
        return (
            self._buffered_events * 2 <= self._hub.buffer_events_max
            and self._buffered_bytes * 2 <= self._hub.buffer_bytes_max
        )

    def _expect_batch(self) -> None:
        if self._progress_s is None:
            return
        if self._progress_timer is not None:
            self._progress_timer.cancel()
        loop = asyncio.get_running_loop()
        self._progress_timer = loop.call_later(self._progress_s, self._progress_is_due)

    def _progress_is_due(self) -> None:
        if self._error is None:
            if not self._buffer:
                self.request_progress()
            self._expect_batch()


def _size_of(events: Sequence[Event]) -> int:
    size = 0
    for event in events:
        size += _EVENT_BYTES + len(event.kv.key) + len(event.kv.value)
        if event.prev_kv is not None:
            size += len(event.prev_kv.key) + len(event.prev_kv.value)
    return size
