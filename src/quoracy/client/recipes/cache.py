"""Cache: everything under a name, here in memory, as it was at a known revision.

    async with quoracy.connect("memory:") as q:
        async with q.cache("services/", str) as cache:
            put = await q.store.put(b"services/web", b"10.0.0.7")
            await cache.wait_revision(put.revision)
            print(cache["web"], cache.revision)             # nobody is asked

`cache.changes()` is an iterator of what changes from then on.

What it promises
    * What is read is what the store held at `cache.revision`: all of it at one revision, no mixture.
    * `changes()` leaves nothing out and tells nothing twice.  One batch is one revision; a batch that
      takes several together (history was compacted while the connection was away, or the reader was too
      slow) says so: `is_summary`.
    * `wait_revision(r)` makes your own write visible: give it the revision the write returned.
    * While the server is silent what is here can still be read; `is_stale` and `silence_s` tell.
    * A value that is not of the type ends nothing: it is kept as it is, and reported in `unreadable`.

It does not promise to be the newest: whoever decides something on it checks that in a transaction.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from types import TracebackType
from typing import Generic, Self, TypeVar, overload

from quoracy.client.codec import Codec, codec_of
from quoracy.client.context import Ground
from quoracy.client.mirror import (
    BYTES_MAX,
    ENTRIES_MAX,
    STALE_AFTER_S,
    Bounds,
    Mirror,
    MirrorChange,
    MirrorKeeper,
)
from quoracy.errors import InvalidRequest, ValueUnreadable
from quoracy.store.model import KeyRange, KeyValue

__all__ = ["Cache", "CacheBatch", "CacheChange", "CacheEntry"]

_log = logging.getLogger(__name__)

T = TypeVar("T")
D = TypeVar("D")


@dataclass(frozen=True, slots=True)
class CacheEntry(Generic[T]):
    """One key of a cache.

    name: the key, without what the cache is of.
    kv: what is stored: the raw value, the revisions, the lease.
    decoded: the value, None if it could not be read; and then `error` says why.
    """

    name: str
    kv: KeyValue = field(repr=False)
    decoded: T | None
    error: ValueUnreadable | None = None

    @property
    def value(self) -> T:
        """The value.  Raises `ValueUnreadable` if it is not of the type of the cache."""
        if self.error is not None:
            raise self.error
        # None is a value like any other, of a type that has it.
        return self.decoded  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class CacheChange(Generic[T]):
    """A key that changed: what it is now (None: deleted), and what it was (None: not there)."""

    name: str
    current: CacheEntry[T] | None
    previous: CacheEntry[T] | None


@dataclass(frozen=True, slots=True)
class CacheBatch(Generic[T]):
    """The changes of one revision, in the order they were made.

    is_summary: several revisions taken together, up to this one, in the order of the keys: for each
        key what it is now and what the reader last saw of it; steps in between are left out.
    """

    revision: int
    changes: tuple[CacheChange[T], ...]
    is_summary: bool = False


class Cache(Generic[T]):
    """A local copy of everything under a name, for the time of a block; shared by whoever likes.

    prefix: what it is of: `services/` and `services` both mean the keys that begin with `services/`.
    entries_max, bytes_max: how much it may hold, in keys and in bytes of keys and values.  If there is
        more, entering raises `TooLarge`; if it grows beyond, reading does from then on.
    stale_after: after how many seconds without a word from the server `is_stale` is True.
    """

    def __init__(
        self,
        ground: Ground,
        prefix: str,
        type: type[T],
        *,
        entries_max: int = ENTRIES_MAX,
        bytes_max: int = BYTES_MAX,
        stale_after: float = STALE_AFTER_S,
    ) -> None:
        name = prefix.removesuffix("/")
        self._root = ground.key(name) + b"/"
        self.name = name
        self._ground = ground
        self._codec: Codec[T] = codec_of(type)
        self._what = f"the cache of {name}/"
        self._bounds = Bounds(self._what, entries_max, bytes_max)
        if not stale_after > 0:
            raise InvalidRequest(f"stale_after is {stale_after}. Give a positive number of seconds.")
        self._stale_after = stale_after
        self._keeper: MirrorKeeper[CacheEntry[T]] | None = None
        self._entering = False

    async def __aenter__(self) -> Self:
        """Read everything.  Raises `TooLarge`, and `Unavailable` if the store cannot be asked."""
        self._ground.check()
        if self._entering:
            raise InvalidRequest(f"{self._what} is entered already. Share it, or make another.")
        self._entering = True
        keeper = MirrorKeeper(
            self._ground,
            Mirror(
                self._ground,
                KeyRange.prefix(self._root),
                self._entry,
                bounds=self._bounds,
                quiet_s=self._stale_after,
            ),
            what=self._what,
        )
        try:
            await keeper.start()
        except BaseException:
            self._entering = False
            raise
        self._keeper = keeper
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._entering = False
        if self._keeper is not None:
            await self._keeper.stop()

    # -- reading: nobody is asked ------------------------------------------------------------

    @property
    def revision(self) -> int:
        """The revision of the store at which everything here was so."""
        return self._mirror.revision

    @property
    def silence_s(self) -> float:
        """How long ago the server last told how things stand, in seconds."""
        return self._open.mirror.silence_s

    @property
    def is_stale(self) -> bool:
        """Whether the server was silent for so long that what is here may be out of date."""
        return self._open.error is not None or self.silence_s > self._stale_after

    @property
    def unreadable(self) -> Mapping[str, ValueUnreadable]:
        """The names whose values are not of the type of the cache, and why."""
        return {entry.name: entry.error for entry in self._mirror.in_order() if entry.error is not None}

    def entry(self, name: str) -> CacheEntry[T] | None:
        """A key with its revisions, its lease and its raw value; None if it is not there."""
        return self._mirror.entries.get(self._key(name))

    def __getitem__(self, name: str) -> T:
        """The value under a name.  Raises `KeyError`; `ValueUnreadable` if it is of another type."""
        entry = self.entry(name)
        if entry is None:
            raise KeyError(name)
        return entry.value

    @overload
    def get(self, name: str) -> T | None: ...
    @overload
    def get(self, name: str, default: D) -> T | D: ...
    def get(self, name: str, default: D | None = None) -> T | D | None:
        """The value under a name, or `default` if there is none.  Raises `ValueUnreadable`."""
        entry = self.entry(name)
        return default if entry is None else entry.value

    def items(self) -> list[tuple[str, T]]:
        """Every name with its value, in order, but for those in `unreadable`."""
        return [(entry.name, entry.value) for entry in self._mirror.in_order() if entry.error is None]

    def entries(self) -> list[CacheEntry[T]]:
        """Everything, in the order of the keys."""
        return self._mirror.in_order()

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.entry(name) is not None

    def __iter__(self) -> Iterator[str]:
        """The names, in order."""
        return iter([entry.name for entry in self._mirror.in_order()])

    def __len__(self) -> int:
        return len(self._mirror.entries)

    # -- keeping up --------------------------------------------------------------------------

    async def wait_revision(self, revision: int, *, timeout: float | None = None) -> None:
        """Wait until everything up to a revision is here: one that a write of yours returned, say.

        Raises `TimedOut`.
        """
        await self._open.wait_revision(revision, timeout)

    def changes(self) -> AsyncGenerator[CacheBatch[T], None]:
        """Every change from this call on, a batch for each revision; it ends when the block is left.

        What is read now and these changes fit together without a gap.  Each call is independent of the
        others; one that is not read for long gets a summary.  Close it if you leave the loop early,
        as `contextlib` does: with `aclosing` in coroutines, `closing` in threads.
        """
        batches = self._open.feed()

        async def translated() -> AsyncGenerator[CacheBatch[T], None]:
            async with aclosing(batches):
                async for batch in batches:
                    changes = tuple(map(_change, batch.changes))
                    yield CacheBatch(batch.revision, changes, batch.is_summary)

        return translated()

    # -- inside ------------------------------------------------------------------------------

    @property
    def _open(self) -> MirrorKeeper[CacheEntry[T]]:
        self._ground.check()
        if self._keeper is None:
            raise InvalidRequest(f"{self._what} is not open. Use it inside `async with`.")
        return self._keeper

    @property
    def _mirror(self) -> Mirror[CacheEntry[T]]:
        keeper = self._open
        keeper.check()
        return keeper.mirror

    def _key(self, name: str) -> bytes:
        return self._root + name.encode("utf-8", "surrogateescape")

    def _entry(self, kv: KeyValue) -> CacheEntry[T]:
        # Keys need not be text; whatever they are, the name leads back to the key.
        name = kv.key[len(self._root) :].decode("utf-8", "surrogateescape")
        try:
            return CacheEntry(name, kv, self._codec.decode(kv.key, kv.value))
        except ValueUnreadable as error:
            _log.warning("%s: %s", self._what, error)
            return CacheEntry(name, kv, None, error)

    def __repr__(self) -> str:
        return f"<Cache {self.name}/>"


def _change(change: MirrorChange[CacheEntry[T]]) -> CacheChange[T]:
    known = change.current or change.previous
    assert known is not None
    return CacheChange(known.name, change.current, change.previous)
