"""From the cluster into the replica: read everything once, then follow every change.

    begin:  pages of one revision -> Replica.begin
    follow: one watch of the whole prefix, from there on -> Replica.apply

Invariants
    * What is read at the beginning is of one revision.  If that is compacted away while it is being
      read, reading starts again at a newer one.
    * The watch survives lost connections by itself and goes on right behind the last revision applied.
      If that was compacted meanwhile, everything is read anew, and `lost` is called.
    * A wait for a revision that changed nothing under our prefix ends: the watch is asked how far it
      is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from quoracy.clock import Clock
from quoracy.engines.etcd.prefix import Prefix
from quoracy.engines.etcd.replica import Replica, Waiter
from quoracy.errors import Compacted, QuoracyError, StoreClosed, Unavailable
from quoracy.remote.store import RemoteStore
from quoracy.remote.watch import RemoteWatch
from quoracy.store.model import KeyRange, KeyValue, Revision

__all__ = ["Feed"]

_log = logging.getLogger(__name__)
_log.addHandler(logging.NullHandler())

_PAGE_KEYS = 1000
# How often reading everything says how far it is.
_REPORT_KEYS = 50_000
# How long a revision may be awaited before the watch is asked whether it is past it already.
_NUDGE_S = 0.1
_AGAIN_S = 0.5


class Feed:
    """Keeps one replica at what the cluster has."""

    def __init__(
        self,
        remote: RemoteStore,
        prefix: Prefix,
        replica: Replica,
        *,
        clock: Clock,
        lost: Callable[[bool], None],
    ) -> None:
        """`lost` is called when history was lost; True: the cluster is not the one it was."""
        self._remote, self._prefix, self._replica = remote, prefix, replica
        self._clock, self._lost = clock, lost
        self._loop = asyncio.get_running_loop()
        self._watch: RemoteWatch | None = None
        self._nudge: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._following: asyncio.Task[None] | None = None
        self._replaced = self._is_stopped = False

    async def begin(self) -> None:
        """Read everything; raises `Unavailable` if that cannot be done."""
        kvs, revision = await self._read_everything()
        self._replica.begin(kvs, revision=revision)

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="quoracy-feed")
        self._task.add_done_callback(self._over)

    async def stop(self) -> None:
        if self._nudge is not None:
            self._nudge.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._is_stopped = True
        self._replica.fail_waiters(StoreClosed())

    def wait(self, revision: int, waiter: Waiter) -> None:
        """End `waiter` when the replica has a revision that it does not have yet."""
        if self._is_stopped:  # an answer that came while the store was being closed
            waiter.end(StoreClosed())
            return
        self._replica.wait(revision, waiter)
        if self._nudge is None:
            self._nudge = self._loop.call_later(_NUDGE_S, self._ask_progress)

    def begin_anew(self) -> None:
        """The cluster is not the one it was: nothing that is here is right."""
        self._replaced = True
        if self._following is not None:
            self._following.cancel()

    def _ask_progress(self) -> None:
        self._nudge = None
        if self._replica.is_awaited:
            if self._watch is not None:
                self._watch.request_progress()
            self._nudge = self._loop.call_later(_NUDGE_S * 5, self._ask_progress)

    # -- following ---------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            # A task of its own, so that `begin_anew` can end it, wherever it waits.
            self._following = asyncio.create_task(self._follow(), name="quoracy-following")
            try:
                await asyncio.wait([self._following])
            finally:
                self._following.cancel()
                await asyncio.wait([self._following])
            error = None if self._following.cancelled() else self._following.exception()
            if self._replaced:
                await self._begin_anew(replaced=True)
                self._replaced = False
            elif isinstance(error, Compacted):
                _log.warning("%s Everything is read anew.", error)
                await self._begin_anew(replaced=False)
            elif isinstance(error, QuoracyError) and not isinstance(error, StoreClosed):
                _log.warning("the watch of the cluster ended, and is made anew: %s", error)
                await self._clock.sleep(_AGAIN_S)
            elif error is not None:
                raise error

    async def _begin_anew(self, *, replaced: bool) -> None:
        while True:
            try:
                kvs, revision = await self._read_everything()
                break
            except StoreClosed:
                raise
            except QuoracyError as error:
                _log.warning("reading everything anew failed, and is tried again: %s", error)
                await self._clock.sleep(_AGAIN_S)
        self._replica.begin(kvs, revision=revision)
        self._lost(replaced)

    async def _follow(self) -> None:
        watch = self._remote.watch(self._prefix.everything, after=self._replica.revision)
        ended: asyncio.Future[None] = self._loop.create_future()

        def apply() -> None:
            # In the turn in which it arrives: waking a task for each revision costs every write.
            try:
                while (batch := watch.poll()) is not None:
                    if not self._replaced:
                        changes = self._prefix.changes(batch.events)
                        self._replica.apply(batch.revision, changes)
            except Exception as error:  # noqa: BLE001 (it ends the task)
                if not ended.done():
                    ended.set_exception(error)

        async with watch:
            self._watch = watch
            try:
                watch.on_ready(apply)
                apply()
                await ended
            finally:
                self._watch = None

    def _over(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and not isinstance(error, StoreClosed):
            _log.error("following the cluster failed", exc_info=error)
            self._replica.fail_waiters(Unavailable(f"following the cluster failed: {error!r}"))

    # -- reading everything ------------------------------------------------------------------

    async def _read_everything(self) -> tuple[list[KeyValue], Revision]:
        while True:
            try:
                return await self._read_once()
            except Compacted as error:
                _log.warning("while everything was being read: %s; reading starts again", error)

    async def _read_once(self) -> tuple[list[KeyValue], Revision]:
        everything, inward = self._prefix.everything, self._prefix.kv
        page = await self._remote.range(everything, limit=_PAGE_KEYS)
        revision, count = page.revision, page.count
        kvs = [inward(kv) for kv in page.kvs]
        reported = 0
        while page.more:
            rest = KeyRange(page.kvs[-1].key + b"\0", everything.end)
            page = await self._remote.range(rest, at=revision, limit=_PAGE_KEYS)
            kvs += [inward(kv) for kv in page.kvs]
            if len(kvs) - reported >= _REPORT_KEYS:
                reported = len(kvs)
                _log.info("reading the cluster: %d of %d keys", reported, count)
        if reported:
            _log.info("reading the cluster: done, %d keys at revision %d", len(kvs), revision)
        return kvs, revision
