"""A local copy of a range of keys: read at one revision, then followed with a watch from there.

    load --> entries at revision R --(watch after R)--> R+1, R+2, ...
               ^                                          |
               +--- read again: compacted, or restored ---+   the difference is one batch

Invariants
    * `entries` is what the store held at `revision`: all of it, and nothing newer.  It changes only
      between two batches, in one turn of the loop.
    * The batches lead from one `entries` to the next, without gaps and without repetition.
    * A store that does not answer ends nothing: the copy grows old (`silence_s`), and continues from
      where it was.  After `silence_max_s` without a message the watch is not relied upon: the store is
      asked.
    * At most `entries_max` keys and `bytes_max` bytes of keys and values; beyond that, `TooLarge`.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from quoracy.client.context import RETRY_S, Context
from quoracy.errors import (
    Compacted,
    Indeterminate,
    InvalidRequest,
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
    "STALE_AFTER_S",
    "Bounds",
    "Mirror",
    "MirrorBatch",
    "MirrorChange",
    "MirrorEntry",
    "read_all",
]

_log = logging.getLogger(__name__)

ENTRIES_MAX = 100_000
BYTES_MAX = 64 * 1024 * 1024
STALE_AFTER_S = 10.0

# The size of a page, judged by the pages before it, and the most keys in one.
_PAGE_BYTES = 1024 * 1024
_PAGE_KEYS_FIRST = 100
_PAGE_KEYS_MAX = 5_000


class MirrorEntry(Protocol):
    """An entry of a mirror: what is made of a key."""

    @property
    def kv(self) -> KeyValue: ...


E = TypeVar("E", bound=MirrorEntry)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of a mirror.  `what` is for the message of `TooLarge`."""

    what: str
    entries_max: int = ENTRIES_MAX
    bytes_max: int = BYTES_MAX

    def __post_init__(self) -> None:
        if self.entries_max < 1 or self.bytes_max < 1:
            raise InvalidRequest(
                f"entries_max is {self.entries_max} and bytes_max {self.bytes_max}. Give at least 1."
            )

    def check(self, entries: int, size: int) -> None:
        """Raise `TooLarge` beyond the limits."""
        for what, found, size_max, setting in (
            (f"the number of keys in {self.what}", entries, self.entries_max, "entries_max"),
            (f"the size of {self.what} in bytes", size, self.bytes_max, "bytes_max"),
        ):
            if found > size_max:
                raise TooLarge(what, size=found, size_max=size_max, setting=setting)


@dataclass(frozen=True, slots=True)
class MirrorChange(Generic[E]):
    """A key that changed: its entry now (None: deleted), and before (None: it did not exist)."""

    current: E | None
    previous: E | None

    @property
    def key(self) -> bytes:
        known = self.current or self.previous
        assert known is not None
        return known.kv.key


@dataclass(frozen=True, slots=True)
class MirrorBatch(Generic[E]):
    """The changes of one revision; a summary is the difference over several.

    Without changes it says that nothing changed up to `revision`.
    """

    revision: int
    changes: tuple[MirrorChange[E], ...] = ()
    is_summary: bool = False


async def read_all(store: Store, keys: KeyRange, bounds: Bounds) -> tuple[int, list[KeyValue]]:
    """Everything in a range as it was at one revision, read in pages.

    Raises `TooLarge`; `Compacted` if that revision was compacted before the last page: begin again.
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
    """The copy.  `load` it, then iterate over `follow`, in one task; other tasks may read it meanwhile.

    read: makes the entry of a key; it must not raise.
    silence_max_s: after that many seconds without a message the server is asked.
    """

    def __init__(
        self,
        context: Context,
        keys: KeyRange,
        read: Callable[[KeyValue], E],
        *,
        bounds: Bounds,
        silence_max_s: float = STALE_AFTER_S,
    ) -> None:
        self.entries: dict[bytes, E] = {}
        self.revision = 0
        self.size = 0
        self._context, self._keys, self._read, self._bounds = context, keys, read, bounds
        self._silence_max_s = silence_max_s
        self._confirmed_at = context.clock.now()
        self._order: list[bytes] | None = None
        self._stream: Watch | None = None
        self._progress_wanted = False
        # An old etcd reports progress only to users who may read everything.
        self._progress_allowed = True
        self._needs_check = self._needs_reload = False

    # -- what is known -----------------------------------------------------------------------

    @property
    def silence_s(self) -> float:
        """The seconds since the server last confirmed the copy."""
        return max(0.0, self._context.clock.now() - self._confirmed_at)

    def in_order(self) -> list[E]:
        """All entries, in the order of the keys."""
        if self._order is None:
            self._order = sorted(self.entries)
        return [self.entries[key] for key in self._order]

    def ask_progress(self) -> None:
        """Ask the server for its revision: a batch, without changes if there are none."""
        self._progress_wanted = True
        if self._stream is not None and self._progress_allowed:
            self._stream.request_progress()

    # -- keeping up --------------------------------------------------------------------------

    async def load(self) -> MirrorBatch[E]:
        """Read everything; the batch is the difference from the entries before."""
        while True:
            try:
                revision, kvs = await read_all(self._context.store, self._keys, self._bounds)
            except Compacted as error:
                _log.info("%s is read again: %s", self._bounds.what, error)
            else:
                return self._replace(revision, kvs)

    async def follow(self) -> AsyncGenerator[MirrorBatch[E], None]:
        """Every batch after the one that `load` returned; it does not end.

        Raises `StoreClosed`, `TooLarge`, and the error with which the store refuses the watch.
        """
        while True:
            try:
                if self._needs_check:
                    checked = await self._compare()
                    self._needs_check = False
                    if checked is not None:
                        yield checked
                if self._needs_reload:
                    batch = await self.load()
                    self._needs_reload = False
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
                self._needs_reload = True
            except TimedOut:
                self._needs_check = True
            except (Unavailable, Indeterminate) as error:
                _log.info("%s waits for the store: %s", self._bounds.what, error)
                await self._context.clock.sleep(RETRY_S)
            except Rejected:
                if not self._progress_allowed:
                    raise
                self._progress_allowed = False
            finally:
                self._stream = None

    def _watch(self) -> Watch:
        progress_s = self._silence_max_s / 3 if self._progress_allowed else None
        return self._context.store.watch(self._keys, after=self.revision, progress_s=progress_s)

    async def _next(self, stream: Watch) -> WatchBatch:
        silence_max_s = self._silence_max_s if self._progress_allowed else self._silence_max_s / 3
        with self._context.wait_scope(self._bounds.what, silence_max_s):
            return await anext(stream)

    async def _compare(self) -> MirrorBatch[E] | None:
        """After silence of the watch: ask whether the copy is still what the store holds.

        It is if no key has a newer version and the number of keys is the same.
        """
        found = await self._context.store.range(
            self._keys, limit=1, keys_only=True, mod_revision_min=self.revision + 1
        )
        if found.revision < self.revision:
            # The store went back, most likely because it was restored from a backup.
            self._needs_reload = True
        elif not found.kvs and found.count == len(self.entries):
            return self._apply(WatchBatch(found.revision))
        return None  # a new watch from here reports what changed

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
                continue  # created and deleted since the read: no change
            if current is None or previous is None:
                self._order = None
            self.size += (_size(current.kv) if current else 0) - (_size(previous.kv) if previous else 0)
            changes.append(MirrorChange(current, previous))
        self._confirm(batch.revision)
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
        self._confirm(revision)
        return MirrorBatch(revision, tuple(changes), is_summary=True)

    def _confirm(self, revision: int) -> None:
        self.revision = revision
        self._confirmed_at = self._context.clock.now()
        self._progress_wanted = False


def _size(kv: KeyValue) -> int:
    return len(kv.key) + len(kv.value)


def _size_of(kvs: Sequence[KeyValue]) -> int:
    return sum(_size(kv) for kv in kvs)
