"""Cache: a local copy of everything under a name, at a known revision.

    async with quoracy.connect("memory:") as q:
        async with q.cache("services/", str) as cache:
            put = await q.store.put(b"services/web", b"10.0.0.7")
            await cache.wait_revision(put.revision)
            print(cache["web"], cache.revision)             # read locally

`cache.changes()` is an iterator of the changes from then on.

What it promises
    * What is read is what the store held at `cache.revision`: all of it at one revision.
    * `changes()` leaves nothing out and repeats nothing.  A batch is one revision; a batch that merges
      several (history was compacted while the connection was away, or the reader was too slow) is
      marked: `is_summary`.
    * `wait_revision(r)` makes your own write visible: pass the revision that the write returned.
    * While the server is silent the copy can still be read; `is_stale` and `silence_s` report it.
    * A value that is not of the type ends nothing: it is kept as it is, and reported in `unreadable`.

It does not promise to be the newest: a decision that relies on it is checked in a transaction.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Generic, TypeVar, overload

from quoracy.client.codec import Codec, codec_of
from quoracy.client.context import Context
from quoracy.client.mirror import BYTES_MAX, ENTRIES_MAX, STALE_AFTER_S, Bounds, Mirror, MirrorChange
from quoracy.client.mirror_updater import MirrorBlock
from quoracy.errors import ValueUnreadable
from quoracy.store.model import KeyValue

__all__ = ["Cache", "CacheBatch", "CacheChange", "CacheEntry"]

_log = logging.getLogger(__name__)

T = TypeVar("T")
D = TypeVar("D")


@dataclass(frozen=True, slots=True)
class CacheEntry(Generic[T]):
    """One key of a cache.

    name: the key without the prefix of the cache.
    kv: the stored key: the raw value, the revisions, the lease.
    decoded: the value; None if it could not be read, and then `error` is the reason.
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
        # None may be a value of the type.
        return self.decoded  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class CacheChange(Generic[T]):
    """A key that changed: its entry now (None: deleted), and before (None: it did not exist)."""

    name: str
    current: CacheEntry[T] | None
    previous: CacheEntry[T] | None


@dataclass(frozen=True, slots=True)
class CacheBatch(Generic[T]):
    """The changes of one revision, in the order in which they were made.

    is_summary: the difference over several revisions up to this one, in the order of the keys: for each
        key its entry now and the one that the reader saw last.
    """

    revision: int
    changes: tuple[CacheChange[T], ...]
    is_summary: bool = False


class Cache(MirrorBlock[CacheEntry[T]], Generic[T]):
    """A local copy of everything under a name, for the time of a block; one object may be shared.

    prefix: `services/` and `services` both mean the keys that begin with `services/`.
    entries_max, bytes_max: the most keys, and bytes of keys and values, that it holds.  If there is
        more, entering raises `TooLarge`; if it grows beyond, reading raises it from then on.
    stale_after: after that many seconds without a message from the server `is_stale` is True.
    """

    def __init__(
        self,
        context: Context,
        prefix: str,
        type: type[T],
        *,
        entries_max: int = ENTRIES_MAX,
        bytes_max: int = BYTES_MAX,
        stale_after: float = STALE_AFTER_S,
    ) -> None:
        name = prefix.removesuffix("/")
        what = f"the cache of {name}/"
        super().__init__(
            context,
            context.key(name) + b"/",
            what=what,
            bounds=Bounds(what, entries_max, bytes_max),
            stale_after=stale_after,
        )
        self.name = name
        self._codec: Codec[T] = codec_of(type)

    # -- reading the local copy --------------------------------------------------------------

    @property
    def revision(self) -> int:
        """The revision of the store that the copy shows."""
        return self._mirror.revision

    @property
    def unreadable(self) -> Mapping[str, ValueUnreadable]:
        """The names whose values are not of the type of the cache, with the reasons."""
        return {entry.name: entry.error for entry in self._mirror.in_order() if entry.error is not None}

    def entry(self, name: str) -> CacheEntry[T] | None:
        """A key with its revisions, its lease and its raw value; None if it does not exist."""
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
        """Every name with its value, in order, without those in `unreadable`."""
        return [(entry.name, entry.value) for entry in self._mirror.in_order() if entry.error is None]

    def entries(self) -> list[CacheEntry[T]]:
        """All entries, in the order of the keys."""
        return self._mirror.in_order()

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.entry(name) is not None

    def __iter__(self) -> Iterator[str]:
        """The names, in order."""
        return iter([entry.name for entry in self._mirror.in_order()])

    def __len__(self) -> int:
        return len(self._mirror.entries)

    # -- following ---------------------------------------------------------------------------

    def changes(self) -> AsyncGenerator[CacheBatch[T], None]:
        """Every change from this call on, a batch for each revision; it ends when the block is left.

        There is no gap between what is read now and these changes.  Each call is independent of the
        others; an iterator that is not read for long gets a summary.  Close it if you leave the loop
        early: with `contextlib.aclosing` in coroutines, with `closing` in threads.
        """
        batches = self._open.subscribe()

        async def translated() -> AsyncGenerator[CacheBatch[T], None]:
            async with aclosing(batches):
                async for batch in batches:
                    changes = tuple(map(_change, batch.changes))
                    yield CacheBatch(batch.revision, changes, batch.is_summary)

        return translated()

    # -- inside ------------------------------------------------------------------------------

    @property
    def _mirror(self) -> Mirror[CacheEntry[T]]:
        self._open.check()
        return self._open.mirror

    def _key(self, name: str) -> bytes:
        return self._root + name.encode("utf-8", "surrogateescape")

    def _entry(self, kv: KeyValue) -> CacheEntry[T]:
        # A key need not be text; the name can always be converted back to the key.
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
