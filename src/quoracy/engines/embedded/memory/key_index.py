"""The index of keys: the past of each, and all of them in order.

`keep` and `version_at` are about one key, whose older versions are in its record, oldest first.  Most
pasts are short: a key that was put twice, or created and deleted.  A short one is a tuple, which the
garbage collector looks at once and then leaves alone.  A long one, of a key that everybody writes, is a
deque: a list of some thousands would be moved up for every few that go from its front.

`SortedRecords` keeps records in the order of their keys, in chunks of bounded length: two binary
searches find a place, and making room there moves at most a chunk.  How many are in the chunks before
one is kept in a tree of sums (Fenwick's), so that a count walks nothing.  All of it is logarithmic for
practical purposes.  It holds records and not only keys, so that a walk finds the versions without
looking each key up in a table that is in main memory.  New keys are sorted in when their order is
needed, or when there are many: the nodes of sessions, locks and elections are mostly deleted before
that.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain
from operator import attrgetter
from typing import Final

from quoracy.engines.embedded.memory.versions import Record
from quoracy.store.model import KeyRange, KeyValue

__all__ = ["Record", "SortedRecords", "keep", "key_of", "version_at"]

key_of = attrgetter("key")

_CHUNK_MAX = 1024

# Longer ones are lists, which need not be copied to grow; and long ones take half a KiB more.
_SHORT: Final = 4
_LONG: Final = 128

_mod_revision = attrgetter("mod_revision")


def keep(record: Record, kv: KeyValue) -> None:
    """Put a version behind those of the past."""
    past = record.past
    if past is None:
        record.past = (kv,)
    elif isinstance(past, list):
        past.append(kv)
        if len(past) > _LONG:
            record.past = deque(past)
    elif isinstance(past, deque):
        past.append(kv)
    elif len(past) < _SHORT:
        record.past = (*past, kv)
    else:
        record.past = [*past, kv]


def version_at(record: Record, at: int) -> KeyValue | None:
    """The version that was current at a kept revision."""
    kv = record.now
    if kv is not None and kv.mod_revision <= at:
        return kv
    past = record.past
    if past is None:
        return None
    older = bisect_right(past, at, key=_mod_revision)
    if not older:
        return None
    kv = past[older - 1]
    return kv if kv.version else None


class SortedRecords:
    """Records in order.  The caller adds only what is missing and removes only what is there.

    No chunk is empty; `_lasts` has the last key of each.  `_sums` is good unless `_is_stale`.  `_late`
    has those that came and are in no chunk yet; `_count` is of those that are.
    """

    __slots__ = ("_chunk_max", "_count", "_is_stale", "_keys", "_lasts", "_late", "_records", "_sums")

    def __init__(self, records: Iterable[Record] = (), *, chunk_max: int = _CHUNK_MAX) -> None:
        ordered = sorted(records, key=key_of)
        half = chunk_max // 2
        self._chunk_max = chunk_max
        self._count = len(ordered)
        self._records = [ordered[at : at + half] for at in range(0, len(ordered), half)]
        self._keys = [[record.key for record in chunk] for chunk in self._records]
        self._lasts = [keys[-1] for keys in self._keys]
        self._sums: list[int] = []
        self._is_stale = True
        self._late: dict[bytes, Record] = {}

    def __len__(self) -> int:
        return self._count + len(self._late)

    def add(self, record: Record) -> None:
        self._late[record.key] = record
        # Half a chunk: to put these in their places takes half a millisecond.
        if 2 * len(self._late) > self._chunk_max:
            self._settle()

    def _settle(self) -> None:
        """Put all that came late in their places."""
        late = self._late
        for key in sorted(late):
            self._place_one(key, late[key])
        late.clear()

    def _place_one(self, key: bytes, record: Record) -> None:
        lasts = self._lasts
        self._count += 1
        chunk = bisect_left(lasts, key)
        if chunk < len(lasts):
            keys = self._keys[chunk]
            at = bisect_left(keys, key)
            keys.insert(at, key)
            self._records[chunk].insert(at, record)
        elif lasts:
            chunk -= 1
            keys = self._keys[chunk]
            keys.append(key)
            self._records[chunk].append(record)
            lasts[chunk] = key
        else:
            keys = [key]
            self._keys.append(keys)
            self._records.append([record])
            lasts.append(key)
            self._is_stale = True
        if len(keys) > self._chunk_max:
            # Keys that come in order leave full chunks behind.
            self._split(chunk, self._chunk_max if keys[-1] is key else self._chunk_max // 2)
        elif not self._is_stale:
            self._note(chunk, 1)

    def remove(self, record: Record) -> None:
        key, lasts = record.key, self._lasts
        if self._late and self._late.pop(key, None) is not None:
            return
        self._count -= 1
        chunk = bisect_left(lasts, key)
        keys = self._keys[chunk]
        at = bisect_left(keys, key)
        assert keys[at] == key
        del keys[at], self._records[chunk][at]
        if not keys or (len(keys) < self._chunk_max // 8 and len(lasts) > 1):
            self._join(chunk)
            return
        if at == len(keys):
            lasts[chunk] = keys[-1]
        if not self._is_stale:
            self._note(chunk, -1)

    def walk(self, keys: KeyRange, *, descending: bool = False) -> Iterator[Record]:
        """The records in range, in order; they must not change meanwhile."""
        if self._late:
            self._settle()
        chunks = self._records
        first, first_at = self._place(keys.start)
        if keys.end is None:
            last, last_at = len(chunks), 0
        else:
            last, last_at = self._place(keys.end)
        if (first, first_at) >= (last, last_at):
            return iter(())
        if first == last:
            return _part(chunks[first], first_at, last_at, descending)
        head = _part(chunks[first], first_at, len(chunks[first]), descending)
        tail = _part(chunks[last], 0, last_at, descending) if last_at else iter(())
        # One by one as they are needed: to read the first of a million costs no other chunk.
        if descending:
            between = map(chunks.__getitem__, range(last - 1, first, -1))
            return chain(tail, chain.from_iterable(map(reversed, between)), head)
        between = map(chunks.__getitem__, range(first + 1, last))
        return chain(head, chain.from_iterable(between), tail)

    def count(self, keys: KeyRange) -> int:
        if self._late:
            self._settle()
        before_end = self._count if keys.end is None else self._before(keys.end)
        return max(0, before_end - self._before(keys.start))

    # -- inside ----------------------------------------------------------------------------

    def _place(self, key: bytes) -> tuple[int, int]:
        """Chunk and place of the first record at or after a key; past all chunks if there is none."""
        chunk = bisect_left(self._lasts, key)
        return chunk, bisect_left(self._keys[chunk], key) if chunk < len(self._keys) else 0

    def _before(self, key: bytes) -> int:
        """How many come before a key."""
        chunk, at = self._place(key)
        if chunk == len(self._lasts):
            return self._count
        if self._is_stale:
            self._sum_up()
        sums = self._sums
        while chunk > 0:
            at += sums[chunk]
            chunk &= chunk - 1
        return at

    def _note(self, chunk: int, change: int) -> None:
        """A chunk has one more, or one less."""
        sums = self._sums
        chunk += 1
        while chunk < len(sums):
            sums[chunk] += change
            chunk += chunk & -chunk

    def _sum_up(self) -> None:
        """Make the tree: place i has the sum of chunks up to the i-th, as many as its last bit says."""
        sums = [0]
        sums += map(len, self._keys)
        for at in range(1, len(sums)):
            above = at + (at & -at)
            if above < len(sums):
                sums[above] += sums[at]
        self._sums = sums
        self._is_stale = False

    def _split(self, chunk: int, at: int) -> None:
        keys, records = self._keys[chunk], self._records[chunk]
        # Copies: what is left of a list that was longer would keep its place in memory.
        self._keys[chunk : chunk + 1] = [keys[:at], keys[at:]]
        self._records[chunk : chunk + 1] = [records[:at], records[at:]]
        self._lasts.insert(chunk, keys[at - 1])
        self._is_stale = True

    def _join(self, chunk: int) -> None:
        """Give what is left of a chunk to one next to it."""
        self._is_stale = True
        if len(self._lasts) > 1:
            chunk = min(chunk, len(self._lasts) - 2)
            self._keys[chunk] += self._keys[chunk + 1]
            self._records[chunk] += self._records[chunk + 1]
            self._lasts[chunk] = self._keys[chunk][-1]
            chunk += 1
        del self._keys[chunk], self._records[chunk], self._lasts[chunk]
        if chunk and len(self._keys[chunk - 1]) > self._chunk_max:
            self._split(chunk - 1, self._chunk_max // 2)


def _part(chunk: list[Record], start: int, stop: int, descending: bool) -> Iterator[Record]:
    """A part of a chunk, not copied."""
    places = range(stop - 1, start - 1, -1) if descending else range(start, stop)
    return map(chunk.__getitem__, places)
