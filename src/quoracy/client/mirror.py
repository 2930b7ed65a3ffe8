"""A local copy of a range of keys: read at one revision, then kept up with by a watch from it.

    load --> entries at revision R --(watch after R)--> R+1, R+2, ...
               ^                                          |
               +--- read again: compacted, or gone back --+   the difference is one batch

Invariants
    * `entries` is what the store held at `revision`: all of it, and nothing newer.  It changes only
      between two batches, in one turn of the loop.
    * Batches, put together, are the way from one `entries` to the next: no gap, nothing twice.
    * A store that cannot be asked ends nothing: what is here grows old (`silence_s`), and the copy goes
      on where it was.  A watch that says nothing for `quiet_s` is not believed: the store is asked.
    * No more than `entries_max` keys and `bytes_max` bytes of keys and values: beyond, `TooLarge`.

A `MirrorKeeper` keeps a mirror up in a task of its own, and notifies its listeners
    * Each listener has a feed: a slow one holds up neither the mirror nor another listener.
    * A feed holds at most `FEED_CHANGES_MAX` changes, or one batch.  Beyond that, what waits in it is
      merged into one summary: nothing is lost but the steps in between.
    * A mirror that cannot go on gives the reason to everyone who waits, listens or reads.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar
from weakref import WeakSet

from quoracy.client.context import Ground
from quoracy.client.session import stop
from quoracy.clock import Timer
from quoracy.errors import (
    Compacted,
    Indeterminate,
    InvalidRequest,
    QuoracyError,
    Rejected,
    StoreClosed,
    TimedOut,
    TooLarge,
    Unavailable,
)
from quoracy.store.api import Store, Watch
from quoracy.store.model import KeyRange, KeyValue, WatchBatch

__all__ = [
    "BYTES_MAX",
    "ENTRIES_MAX",
    "FEED_CHANGES_MAX",
    "STALE_AFTER_S",
    "Bounds",
    "Kept",
    "Mirror",
    "MirrorBatch",
    "MirrorChange",
    "MirrorKeeper",
    "read_all",
]

_log = logging.getLogger(__name__)

ENTRIES_MAX = 100_000
BYTES_MAX = 64 * 1024 * 1024
STALE_AFTER_S = 10.0
_ASK_AGAIN_S = 0.5

# A page is about this large, as far as the pages before tell; none has more keys than that.
_PAGE_BYTES = 1024 * 1024
_PAGE_KEYS_FIRST = 100
_PAGE_KEYS_MAX = 5_000


class Kept(Protocol):
    """What is made of a key and kept."""

    @property
    def kv(self) -> KeyValue: ...


E = TypeVar("E", bound=Kept)


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much may be kept.  `what` and the settings are for the message of `TooLarge`."""

    what: str
    entries_max: int = ENTRIES_MAX
    bytes_max: int = BYTES_MAX

    def __post_init__(self) -> None:
        if self.entries_max < 1 or self.bytes_max < 1:
            raise InvalidRequest(
                f"entries_max is {self.entries_max} and bytes_max {self.bytes_max}. Give at least 1."
            )

    def check(self, entries: int, size: int) -> None:
        if entries > self.entries_max:
            raise TooLarge(
                f"the number of keys in {self.what}",
                size=entries,
                size_max=self.entries_max,
                setting="entries_max",
            )
        if size > self.bytes_max:
            raise TooLarge(
                f"the size of {self.what} in bytes",
                size=size,
                size_max=self.bytes_max,
                setting="bytes_max",
            )


@dataclass(frozen=True, slots=True)
class MirrorChange(Generic[E]):
    """A key that changed: what it is now (None: deleted), and what it was (None: not there)."""

    current: E | None
    previous: E | None

    @property
    def key(self) -> bytes:
        known = self.current or self.previous
        assert known is not None
        return known.kv.key


@dataclass(frozen=True, slots=True)
class MirrorBatch(Generic[E]):
    """The changes of one revision; as a summary, of several taken together, steps between left out.

    Without changes it says that nothing changed up to `revision`.
    """

    revision: int
    changes: tuple[MirrorChange[E], ...] = ()
    is_summary: bool = False


async def read_all(store: Store, keys: KeyRange, bounds: Bounds) -> tuple[int, list[KeyValue]]:
    """Everything in a range as it was at one revision, read in pages.

    Raises `TooLarge`; `Compacted` if that revision was forgotten before the last page: begin again.
    """
    page = await store.range(keys, limit=_PAGE_KEYS_FIRST)
    revision, kvs, size = page.revision, list(page.kvs), _size_of(page.kvs)
    bounds.check(page.count, size)
    while page.more:
        limit = max(1, min(_PAGE_KEYS_MAX, _PAGE_BYTES * len(kvs) // max(1, size)))
        rest = KeyRange(kvs[-1].key + b"\0", keys.end)
        page = await store.range(rest, at=revision, limit=limit)
        kvs.extend(page.kvs)
        size += _size_of(page.kvs)
        bounds.check(len(kvs), size)
    return revision, kvs


class Mirror(Generic[E]):
    """The copy.  `load` it, then iterate over `follow`, in one task; anybody may look at it meanwhile.

    read: what to keep of a key; it must not raise.
    quiet_s: how long the server may be silent before it is asked.
    """

    def __init__(
        self,
        ground: Ground,
        keys: KeyRange,
        read: Callable[[KeyValue], E],
        *,
        bounds: Bounds,
        quiet_s: float = STALE_AFTER_S,
    ) -> None:
        self.entries: dict[bytes, E] = {}
        self.revision = 0
        self.size = 0
        self._ground, self._keys, self._read, self._bounds = ground, keys, read, bounds
        self._quiet_s = quiet_s
        self._heard_at = ground.clock.now()
        self._order: list[bytes] | None = None
        self._stream: Watch | None = None
        self._progress_wanted = False
        # An old etcd tells its progress only to those who may read everything.
        self._progress_allowed = True
        self._in_doubt = self._lost_track = False

    # -- what is known -----------------------------------------------------------------------

    @property
    def silence_s(self) -> float:
        """How long ago the server last said how things stand."""
        return max(0.0, self._ground.clock.now() - self._heard_at)

    def in_order(self) -> list[E]:
        """Everything, in the order of the keys."""
        if self._order is None:
            self._order = sorted(self.entries)
        return [self.entries[key] for key in self._order]

    def ask_progress(self) -> None:
        """Have the server say how far the copy is, in a batch without changes if need be."""
        self._progress_wanted = True
        if self._stream is not None and self._progress_allowed:
            self._stream.request_progress()

    # -- keeping up --------------------------------------------------------------------------

    async def load(self) -> MirrorBatch[E]:
        """Read everything; the batch is the difference to what was here before."""
        while True:
            try:
                revision, kvs = await read_all(self._ground.store, self._keys, self._bounds)
            except Compacted as error:
                _log.info("%s is read again: %s", self._bounds.what, error)
            else:
                return self._replace(revision, kvs)

    async def follow(self) -> AsyncGenerator[MirrorBatch[E], None]:
        """Every batch after the one that `load` returned, for ever.

        Raises `StoreClosed`, `TooLarge`, and whatever the store refuses the watch with.
        """
        while True:
            try:
                if self._in_doubt:
                    proved = await self._prove()
                    self._in_doubt = False
                    if proved is not None:
                        yield proved
                if self._lost_track:
                    batch = await self.load()
                    self._lost_track = False
                    yield batch
                async with self._watch() as stream:
                    self._stream = stream
                    if self._progress_wanted:
                        self.ask_progress()
                    while True:
                        yield self._apply(await self._next(stream))
            except (StoreClosed, TooLarge):
                raise
            except Compacted:
                self._lost_track = True
            except TimedOut:
                self._in_doubt = True
            except (Unavailable, Indeterminate) as error:
                _log.info("%s waits for the store: %s", self._bounds.what, error)
                await self._ground.clock.sleep(_ASK_AGAIN_S)
            except Rejected:
                if not self._progress_allowed:
                    raise
                self._progress_allowed = False
            finally:
                self._stream = None

    def _watch(self) -> Watch:
        progress_s = self._quiet_s / 3 if self._progress_allowed else None
        return self._ground.store.watch(self._keys, after=self.revision, progress_s=progress_s)

    async def _next(self, stream: Watch) -> WatchBatch:
        quiet_s = self._quiet_s if self._progress_allowed else self._quiet_s / 3
        with self._ground.waiting(self._bounds.what, quiet_s):
            return await anext(stream)

    async def _prove(self) -> MirrorBatch[E] | None:
        """The watch was silent: ask whether the copy is still what the store holds.

        It is if no key has a newer version and there are as many as here.
        """
        found = await self._ground.store.range(
            self._keys, limit=1, keys_only=True, mod_revision_min=self.revision + 1
        )
        if found.revision < self.revision:
            # The store is not the one it was: restored from a backup, most likely.
            self._lost_track = True
        elif not found.kvs and found.count == len(self.entries):
            return self._apply(WatchBatch(found.revision))
        return None  # what changed, the watch tells, made anew from here

    # -- changing ----------------------------------------------------------------------------

    def _apply(self, batch: WatchBatch) -> MirrorBatch[E]:
        changes = []
        for event in batch.events:
            key = event.kv.key
            previous = self.entries.get(key)
            current = self._read(event.kv) if event.kv.version else None
            if current is not None:
                self.entries[key] = current
            elif previous is not None:
                del self.entries[key]
            else:
                continue  # created and deleted before we looked: nothing to tell
            if current is None or previous is None:
                self._order = None
            self.size += (_size(current.kv) if current else 0) - (_size(previous.kv) if previous else 0)
            changes.append(MirrorChange(current, previous))
        self._heard(batch.revision)
        self._bounds.check(len(self.entries), self.size)
        return MirrorBatch(batch.revision, tuple(changes))

    def _replace(self, revision: int, kvs: Sequence[KeyValue]) -> MirrorBatch[E]:
        before, entries = self.entries, {}
        changes: list[MirrorChange[E]] = []
        for kv in kvs:
            previous = before.get(kv.key)
            if previous is not None and previous.kv == kv:
                entries[kv.key] = previous
            else:
                entries[kv.key] = self._read(kv)
                changes.append(MirrorChange(entries[kv.key], previous))
        changes += [MirrorChange(None, gone) for key, gone in before.items() if key not in entries]
        changes.sort(key=lambda change: change.key)
        self.entries, self._order = entries, None
        self.size = _size_of(kvs)
        self._heard(revision)
        return MirrorBatch(revision, tuple(changes), is_summary=True)

    def _heard(self, revision: int) -> None:
        self.revision = revision
        self._heard_at = self._ground.clock.now()
        self._progress_wanted = False


def _size(kv: KeyValue) -> int:
    return len(kv.key) + len(kv.value)


def _size_of(kvs: Sequence[KeyValue]) -> int:
    return sum(_size(kv) for kv in kvs)


_log = logging.getLogger(__name__)

FEED_CHANGES_MAX = 10_000
# A member of a cluster may answer before it has heard of what another one acknowledged.
_PROGRESS_AGAIN_S = 0.1


class MirrorKeeper(Generic[E]):
    """A mirror for the time of a block.

    on_batch: called with every batch, in the turn in which the mirror changed; it must not raise.
    """

    def __init__(
        self,
        ground: Ground,
        mirror: Mirror[E],
        *,
        what: str,
        on_batch: Callable[[MirrorBatch[E]], None] | None = None,
    ) -> None:
        self.mirror = mirror
        self.error: QuoracyError | None = None
        self._ground, self._what, self._on_batch = ground, what, on_batch
        self._task: asyncio.Task[None] | None = None
        self._feeds: WeakSet[_Feed[E]] = WeakSet()
        self._waiters = 0
        self._advanced: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ask_again: Timer | None = None

    async def start(self) -> None:
        """Read everything, and begin to follow.  Raises what reading raises."""
        self._tell(await self.mirror.load())
        self._task = self._ground.spawn(self._run(), name="quoracy-mirror")

    async def stop(self) -> None:
        """Stop; those who listen come to the end."""
        self._end(None)
        if self._task is not None:
            await stop(self._task)

    def check(self) -> None:
        """Raise why the mirror does not go on, if it does not."""
        if self.error is not None:
            raise self.error

    async def wait_revision(self, revision: int, timeout: float | None) -> None:
        """Wait until the mirror is at that revision, or past it."""
        self.check()
        if self.mirror.revision >= revision:
            return
        self._waiters += 1
        try:
            with self._ground.waiting(f"revision {revision} in {self._what}", timeout):
                self.mirror.ask_progress()
                while self.mirror.revision < revision:
                    await asyncio.shield(self._advanced)
                    self.check()
        finally:
            self._waiters -= 1

    def feed(self) -> AsyncGenerator[MirrorBatch[E], None]:
        """Every batch with changes from now on: from this call, not from the first step."""
        self.check()
        feed: _Feed[E] = _Feed()
        self._feeds.add(feed)
        return feed.batches()

    async def _run(self) -> None:
        try:
            async with aclosing(self.mirror.follow()) as batches:
                async for batch in batches:
                    self._tell(batch)
        except asyncio.CancelledError:
            # Not by `stop`, which has told everyone before: the connection was closed.
            self._end(StoreClosed())
            raise
        except QuoracyError as error:
            _log.warning("%s ends: %s", self._what, error)
            self._end(error)
        except Exception as error:
            self._end(Unavailable(f"{self._what} failed: {error!r}. This is a bug; please report it."))
            raise

    def _tell(self, batch: MirrorBatch[E]) -> None:
        if self._on_batch is not None:
            self._on_batch(batch)
        if batch.changes:
            for feed in list(self._feeds):
                feed.put(batch)
        self._wake()
        if self._waiters and self._ask_again is None:
            self._ask_again = self._ground.clock.call_later(_PROGRESS_AGAIN_S, self._ask)

    def _ask(self) -> None:
        self._ask_again = None
        if self._waiters:
            self.mirror.ask_progress()

    def _end(self, error: QuoracyError | None) -> None:
        self.error = self.error or error or InvalidRequest(f"{self._what} was left: it is not kept up.")
        if self._ask_again is not None:
            self._ask_again.cancel()
        for feed in list(self._feeds):
            feed.end(error)
        self._wake()

    def _wake(self) -> None:
        advanced, self._advanced = self._advanced, asyncio.get_running_loop().create_future()
        advanced.set_result(None)


class _Feed(Generic[E]):
    """What one listener has not read yet."""

    def __init__(self) -> None:
        self._waiting: deque[MirrorBatch[E]] = deque()
        self._changes = 0
        # Everything that waits, taken together, once it was too much.
        self._summary: dict[bytes, MirrorChange[E]] | None = None
        self._revision = 0
        self._ended = False
        self._error: QuoracyError | None = None
        self._news = asyncio.Event()

    def put(self, batch: MirrorBatch[E]) -> None:
        self._revision = batch.revision
        if self._waiting and self._changes + len(batch.changes) > FEED_CHANGES_MAX:
            self._summary = {}
            for waiting in self._waiting:
                _fold(self._summary, waiting)
            self._waiting.clear()
            self._changes = 0
        if self._summary is not None:
            _fold(self._summary, batch)
        else:
            self._waiting.append(batch)
            self._changes += len(batch.changes)
        self._news.set()

    def end(self, error: QuoracyError | None) -> None:
        if not self._ended:
            self._ended, self._error = True, error
            self._news.set()

    async def batches(self) -> AsyncGenerator[MirrorBatch[E], None]:
        while True:
            batch = self._take()
            if batch is not None:
                yield batch
            elif self._ended:
                if self._error is not None:
                    raise self._error
                return
            else:
                self._news.clear()
                await self._news.wait()

    def _take(self) -> MirrorBatch[E] | None:
        if self._summary is not None:
            changes, self._summary = self._summary, None
            if changes:
                in_order = tuple(changes[key] for key in sorted(changes))
                return MirrorBatch(self._revision, in_order, is_summary=True)
        if not self._waiting:
            return None
        batch = self._waiting.popleft()
        self._changes -= len(batch.changes)
        return batch


def _fold(summary: dict[bytes, MirrorChange[E]], batch: MirrorBatch[E]) -> None:
    for change in batch.changes:
        before = summary.get(change.key)
        previous = change.previous if before is None else before.previous
        if change.current is None and previous is None:
            summary.pop(change.key, None)
        else:
            summary[change.key] = MirrorChange(change.current, previous)
