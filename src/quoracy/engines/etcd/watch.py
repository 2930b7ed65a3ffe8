"""A watch on the replica; where its history does not reach, on the cluster.

    here:    what the replica knows (`engines.embedded.watching.watch`)
    there:   a watch of the cluster itself, for a start that lies before what the replica knows, and for
             a consumer so slow that the replica forgot what it needs next

The change from one to the other is made by a task (`_moving`); meanwhile `poll` has nothing.

Invariants
    * `revision` is what was delivered; a change of place goes on right behind it, without a gap.
    * Nothing is delivered before the replica has it: a consumer finds the event when it reads here.
    * A watch whose history the cluster forgot as well gets `Compacted`, and so does every watch that
      ran when the cluster was replaced by another: what it delivered is not this cluster's past.
"""

from __future__ import annotations

import asyncio
import logging
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from quoracy.engines.embedded.watching.watch import EmbeddedWatch
from quoracy.engines.etcd.replica import Waiter
from quoracy.errors import Compacted, InvalidRequest, StoreClosed, Unavailable
from quoracy.remote.watch import RemoteWatch
from quoracy.store.api import WatchOptions
from quoracy.store.coroutines import PolledWatch
from quoracy.store.model import KeyRange, Revision, WatchBatch

if TYPE_CHECKING:
    from quoracy.engines.etcd.engine import EtcdStore

__all__ = ["EtcdWatch"]

_log = logging.getLogger(__name__)
_log.addHandler(logging.NullHandler())

_AGAIN_S = 0.5


class EtcdWatch(PolledWatch):
    """A `Watch`.  One consumer at a time."""

    def __init__(self, store: EtcdStore, keys: KeyRange, **options: Unpack[WatchOptions]) -> None:
        super().__init__()
        self._store, self._keys = store, keys
        self._after = options.get("after")
        self._options = options
        self._here: EmbeddedWatch | None = None
        self._there: RemoteWatch | None = None
        self._moving: asyncio.Task[None] | None = None
        self._held: WatchBatch | None = None  # from there; the replica does not have it yet
        self._error: BaseException | None = None
        self._revision = Revision(0)
        self._progress_wanted = self._entered = False
        self._history_lost = self._replaced = False
        self._make_here(self._after)  # so that a wrong option is refused where it is given

    @property
    def keys(self) -> KeyRange:
        return self._keys

    @property
    def revision(self) -> Revision:
        return self._revision

    def request_progress(self) -> None:
        self._progress_wanted = True
        stream = self._here or self._there
        if stream is not None:
            stream.request_progress()

    async def __aenter__(self) -> Self:
        if self._entered:
            raise InvalidRequest("a watch can be entered once. Make another with store.watch().")
        self._entered = True
        if self._after is None or self._after < self._store.replica.revision:
            # The newest there is, anywhere, and whether the past is still kept.  A node that cannot
            # know goes on from what it has.
            try:
                await self._store.sync()
            except StoreClosed:
                raise
            except Unavailable:
                pass
        after = self._store.replica.revision if self._after is None else self._after
        self._revision = Revision(after)
        self._store.enter_watch(self)
        try:
            await self._go_on()
        except BaseException:
            self._store.leave_watch(self)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._store.leave_watch(self)
        if self._moving is not None:
            self._moving.cancel()
            await asyncio.wait([self._moving])
        await self._leave()

    def poll(self) -> WatchBatch | None:
        if self._error is not None:
            raise self._error
        if self._moving is not None:
            return None
        if self._here is not None:
            batch = self._poll_here(self._here)
        elif self._there is not None:
            batch = self._poll_there(self._there)
        else:
            raise InvalidRequest("the watch is not open. Use it inside `async with`.")
        if batch is not None:
            self._revision = batch.revision
            if not batch.events:
                self._progress_wanted = False
        return batch

    def history_lost(self, *, replaced: bool) -> None:
        """The replica was filled anew: what is buffered is delivered, the rest is not here."""
        if replaced:
            self._held = None
        self._history_lost, self._replaced = True, self._replaced or replaced
        if self._here is not None:
            self._here.store_closed()
        elif replaced and self._there is not None:
            self._there.fail(self._compacted())

    def store_closed(self) -> None:
        if self._here is not None:
            self._here.store_closed()

    # -- here and there ----------------------------------------------------------------------

    def _poll_here(self, here: EmbeddedWatch) -> WatchBatch | None:
        try:
            return here.poll()
        except StoreClosed:
            if not self._history_lost:
                raise
        except Compacted:
            pass  # forgotten here; the cluster may still know
        if self._replaced:
            self._error = self._compacted()
            raise self._error
        self._history_lost = False
        self._move()
        return None

    def _poll_there(self, there: RemoteWatch) -> WatchBatch | None:
        store, batch = self._store, self._held
        if batch is None:
            batch = there.poll()
            if batch is None:
                return None
            events = tuple([store.prefix.event(event) for event in batch.events])
            batch = WatchBatch(batch.revision, events)
            if batch.revision > store.replica.revision:
                self._held = batch
                store.when_reached(batch.revision, _Held(self))
        if batch.revision > store.replica.revision:
            return None
        self._held = None
        if batch.revision + 1 >= store.replica.known_from:
            self._revision = batch.revision
            self._move()
        return batch

    def held_arrived(self, error: BaseException | None) -> None:
        """The replica has the revision that is held, or will not have it."""
        if error is not None:
            self._error = error
        self._wake()

    def _move(self) -> None:
        """Go on behind `revision`, here or there."""
        self._moving = asyncio.get_running_loop().create_task(
            self._go_on_when_possible(), name="quoracy-watch-moves"
        )
        self._moving.add_done_callback(self._moved)

    def _moved(self, moving: asyncio.Task[None]) -> None:
        self._moving = None
        if not moving.cancelled():  # as it is when the watch was left
            self._error = moving.exception()
            self._wake()

    async def _go_on_when_possible(self) -> None:
        """A watch that runs waits for a cluster that does not answer, however long that takes."""
        await self._leave()
        while True:
            try:
                await self._go_on()
                return
            except StoreClosed:
                raise
            except Unavailable as error:
                _log.info("a watch of %s waits for the cluster: %s", self._keys, error)
                await self._store.clock.sleep(_AGAIN_S)

    async def _go_on(self) -> None:
        """Take up the watch behind `revision`, wherever its history is."""
        if max(self._revision + 1, 2) >= self._store.replica.known_from:
            here = self._make_here(self._revision)
            here.on_ready(self._wake)
            await here.__aenter__()
            self._here = here
        else:
            options: WatchOptions = {**self._options, "after": self._revision}
            there = self._store.watch_there(self._keys, **options)
            there.on_ready(self._wake)
            await there.__aenter__()
            self._there = there
        if self._progress_wanted:
            self.request_progress()

    async def _leave(self) -> None:
        here, there, self._here, self._there = self._here, self._there, None, None
        if here is not None:
            await here.__aexit__(None, None, None)
        if there is not None:
            await there.__aexit__(None, None, None)

    def _make_here(self, after: int | None) -> EmbeddedWatch:
        store = self._store
        options: WatchOptions = {**self._options, "after": after}
        return EmbeddedWatch(self, store.replica.hub, store.clock, self._keys, **options)

    # The store knows this watch, and this watch the one here: there is nothing to keep a list of.

    def enter_stream(self, stream: EmbeddedWatch) -> None: ...

    def leave_stream(self, stream: EmbeddedWatch) -> None: ...

    def _compacted(self) -> Compacted:
        return Compacted(wanted=self._revision + 1, oldest=self._store.replica.known_from)


class _Held(Waiter):
    """The wait of a batch from the cluster for the replica to have it."""

    __slots__ = ("_watch",)

    def __init__(self, watch: EtcdWatch) -> None:
        super().__init__()
        self._watch = watch

    def ended(self, error: BaseException | None) -> None:
        self._watch.held_arrived(error)
