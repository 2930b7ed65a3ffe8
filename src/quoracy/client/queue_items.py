"""The items of a queue, stored under its name in the order in which they were committed.

    name/tail                          the number of the bucket that items are put into
    name/items/[priority/]bucket/id    an item

The order is that of commits: it depends on no machine's clock, and on no counter that every producer
writes.  The store numbers commits itself (`create_revision`), but to sort a long queue by that, the
server reads all of it for each get.  So items lie in buckets.  A put is a transaction that holds only
while the bucket it names is the tail, so puts do not conflict; every 64 items or so one of them moves
the tail on in the same transaction.  What is in a bucket was therefore committed before anything in a
later one, and items are sorted only within a bucket.

Invariants
    * Bucket first, then create_revision, then key: that is the order of commits, and within one
      transaction the order in which its items were given.
    * No item appears in a bucket before the tail any more.  The exception is bucket 0, the front of a
      priority, where a get that was cancelled puts its item back.
    * A look reads a window of buckets, never the whole queue: its cost does not depend on the length of
      the queue.  (With priorities it begins at the first key that exists; plain etcd counts all keys.)
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from quoracy.client.compare_and_swap import key_at, range_at
from quoracy.client.context import Context
from quoracy.errors import Indeterminate, TooLarge, Unavailable
from quoracy.store.model import (
    Compare,
    KeyRange,
    KeyValue,
    Op,
    Put,
    Range,
    RangeResult,
    SortTarget,
    Txn,
    TxnResult,
)

__all__ = ["PUT_MANY_MAX", "QueueItems", "Window"]

# A transaction has at most 128 operations, and moving the tail is one.
PUT_MANY_MAX = 127

_BUCKET_ITEMS = 64
_PAGE = 256
_SPAN = 8
_SPAN_MAX = 4096
_FRONT = 0
_FIRST = 1


@dataclass(frozen=True, slots=True)
class Window:
    """The first items, in order, without their values, at one revision.

    marked: the items among them that have a mark, by `QueueItems.relative`.
    before: keys that would come before them; if one exists, these are not the first any more.  None:
        there is no such key.
    next_start: the bucket at which the next window begins; None: there is none.
    """

    kvs: tuple[KeyValue, ...]
    marked: frozenset[bytes]
    before: KeyRange | None
    revision: int
    next_start: int | None


@dataclass(frozen=True, slots=True)
class _Tail:
    bucket: int
    created: int
    moved: int


class QueueItems:
    """The items of one queue, as one process sees them.

    marks: the prefix of keys `<marks><bucket>/<id>/...` that mark items; a look reports these items.
    """

    def __init__(self, context: Context, key: bytes, *, marks: bytes | None = None) -> None:
        self.prefix = key + b"/items/"
        self._context, self._tail_key, self._marks = context, key + b"/tail", marks
        self._tail: _Tail | None = None
        self._revision = 0
        # Where looks begin: every bucket before it, except the front, was empty and before the tail.
        self._head, self._head_of, self._span = _FIRST, 0, _SPAN

    def relative(self, key: bytes) -> bytes:
        """The key of an item without the common prefix: `[priority/]bucket/id`."""
        return key[len(self.prefix) :]

    def front_key(self, key: bytes) -> bytes:
        """The key of an item that is put back: at the front of its priority."""
        group, _, id = key.rpartition(b"/")
        return b"%b/%b/%b" % (group.rpartition(b"/")[0], _number(_FRONT), id)

    # -- putting -----------------------------------------------------------------------------

    async def put(self, values: Sequence[bytes], *, prefix: bytes = b"") -> int:
        """Put items at the end, or at the end of a priority, in one transaction; its revision."""
        if len(values) > PUT_MANY_MAX:
            raise TooLarge(
                "the number of items in one put_many",
                size=len(values),
                size_max=PUT_MANY_MAX,
                setting="nothing: put them in several calls",
            )
        id = secrets.token_hex(8).encode()
        result = await self.commit(
            len(values),
            lambda bucket: tuple(
                Put(b"%b%b%b/%b-%02x" % (self.prefix, prefix, bucket, id, at), value)
                for at, value in enumerate(values)
            ),
        )
        return result.revision

    async def commit(self, count: int, make: Callable[[bytes], tuple[Op, ...]]) -> TxnResult:
        """Carry out what `make` returns for the bucket at the tail: operations that put `count` items.

        They are sent again only if the store answered that the tail had moved: other puts succeeded.
        """
        tail = self._tail or await self._find_tail()
        while True:
            bucket = tail.bucket
            moving: tuple[Put, ...] = ()
            if (self._revision - tail.moved) * count >= _BUCKET_ITEMS:
                bucket += 1
                moving = (Put(self._tail_key, _number(bucket)),)
            still = Compare.value(self._tail_key, "=", _number(tail.bucket))
            txn = Txn((still,), (*moving, *make(_number(bucket))), (Range(self._tail_key),))
            result = await self._context.write(txn)
            self._revision = max(self._revision, result.revision)
            if result.succeeded:
                if moving:
                    self._tail = _Tail(bucket, tail.created, result.revision)
                return result
            tail = self._tail_in(result) or await self._find_tail()

    async def _find_tail(self) -> _Tail:
        """The tail; the first put of all creates it."""
        first = Put(self._tail_key, _number(_FIRST))
        try:
            result = await self._context.write(
                Txn((Compare.missing(self._tail_key),), (first,), (Range(self._tail_key),))
            )
        except Indeterminate as error:
            raise Unavailable(
                f"the queue could not be prepared, so nothing was put: {error}"
            ) from error
        self._revision = max(self._revision, result.revision)
        if result.succeeded:
            self._tail = _Tail(_FIRST, result.revision, result.revision)
            return self._tail
        return self._tail_in(result) or await self._find_tail()

    def _tail_in(self, result: TxnResult) -> _Tail | None:
        found = key_at(result, 0)
        self._tail = None if found is None else _tail_of(found)
        return self._tail

    # -- looking -----------------------------------------------------------------------------

    async def look(self, start: int | None = None) -> Window:
        """A window of the first items; or of the first from the bucket `start` on."""
        while True:
            begin = self._head if start is None else start
            window, tail = await self._window(begin, begin + self._span)
            if tail is not None and tail.created != self._head_of:
                # The queue was deleted, and began again.
                self._head_of = tail.created
                if begin != _FIRST:
                    self._head, start = _FIRST, None
                    continue
            if window.kvs:
                bucket = self._bucket_of(window.kvs[0].key)
                if start is None and bucket != _FRONT:
                    self._head = bucket
                self._fit(len(window.kvs))
                return window
            if window.next_start is None:
                return window
            # No item can appear there any more.  The window doubles: a gap costs its logarithm.
            if start is None:
                self._head = window.next_start
            else:
                start = window.next_start
            self._span = min(self._span * 2, _SPAN_MAX)

    async def look_by_priority(self) -> Window:
        """The first items of the most urgent priority that has any."""
        whole = KeyRange.prefix(self.prefix)
        found = await self._context.store.range(whole, limit=_PAGE, keys_only=True)
        kvs = await self._first_of(found)
        if kvs:
            priority = self._priority_of(kvs[0].key)
            kvs = tuple(kv for kv in kvs if self._priority_of(kv.key) == priority)
        before = KeyRange(self.prefix, _group_of(kvs[0].key)) if kvs else None
        return Window(kvs, frozenset(), before, found.revision, None)

    async def count(self) -> int:
        """The number of items."""
        counted = await self._context.store.range(KeyRange.prefix(self.prefix), count_only=True)
        return counted.count

    async def _window(self, begin: int, end: int) -> tuple[Window, _Tail | None]:
        upto = self.prefix + _number(end)
        front = KeyRange.prefix(self.prefix + _number(_FRONT) + b"/")
        ranges = [
            Range(self._tail_key),
            Range(front, limit=_PAGE, sort_by=SortTarget.CREATE, keys_only=True),
            Range(KeyRange(self.prefix + _number(begin), upto), limit=_PAGE, keys_only=True),
        ]
        if self._marks is not None:
            # Each belongs to an item in one of these buckets, which bounds their number.
            ranges.append(Range(_between(self._marks, begin, end), keys_only=True))
        result = await self._context.store.txn(Txn(then=tuple(ranges)))
        found_tail, in_front, found = range_at(result, 0), range_at(result, 1), range_at(result, 2)
        tail = _tail_of(found_tail.kvs[0]) if found_tail.kvs else None
        kvs = _in_order(in_front.kvs) or await self._first_of(found)
        before = None if in_front.kvs or self._marks is not None else front
        next_start = end if tail is not None and tail.bucket >= end else None
        if kvs and found.more:
            next_start = max(begin, self._bucket_of(kvs[-1].key) + 1)
        marked: frozenset[bytes] = frozenset()
        if self._marks is not None:
            cut = len(self._marks)
            marked = frozenset(kv.key[cut:].rpartition(b"/")[0] for kv in range_at(result, 3).kvs)
        return Window(kvs, marked, before, result.revision, next_start), tail

    async def _first_of(self, found: RangeResult) -> tuple[KeyValue, ...]:
        """The complete buckets of a page, in order: the last one may lack its oldest item."""
        if not found.more:
            return _in_order(found.kvs)
        last = _group_of(found.kvs[-1].key)
        whole = [kv for kv in found.kvs if _group_of(kv.key) != last]
        if whole:
            return _in_order(whole)
        # One bucket with more than a page, put by many producers at once: its oldest items.  The last
        # transaction among them may be incomplete, so it is left out; no transaction fills a page.
        # A look for items without a mark needs them all.
        oldest = await self._context.store.range(
            KeyRange.prefix(last),
            limit=_PAGE if self._marks is None else None,
            sort_by=SortTarget.CREATE,
            keys_only=True,
        )
        kvs = oldest.kvs
        if oldest.more:
            kvs = tuple(kv for kv in kvs if kv.create_revision != oldest.kvs[-1].create_revision)
        return _in_order(kvs)

    def _fit(self, count: int) -> None:
        """Adapt the window so that it holds some hundred items."""
        if count >= _PAGE // 2:
            self._span = max(1, self._span // 2)
        elif count < _PAGE // 8:
            self._span = min(self._span * 2, 64)
        else:
            self._span = min(self._span, 64)

    def _bucket_of(self, key: bytes) -> int:
        return int(_group_of(key)[:-1].rpartition(b"/")[2], 16)

    def _priority_of(self, key: bytes) -> bytes:
        return self.relative(key).rpartition(b"/")[0].rpartition(b"/")[0]


def _number(bucket: int) -> bytes:
    return b"%012x" % bucket


def _between(prefix: bytes, begin: int, end: int) -> KeyRange:
    return KeyRange(prefix + _number(begin), prefix + _number(end))


def _group_of(key: bytes) -> bytes:
    """The bucket of an item, with its priority, as a prefix."""
    return key[: key.rindex(b"/") + 1]


def _in_order(kvs: Sequence[KeyValue]) -> tuple[KeyValue, ...]:
    return tuple(sorted(kvs, key=lambda kv: (_group_of(kv.key), kv.create_revision, kv.key)))


def _tail_of(kv: KeyValue) -> _Tail:
    return _Tail(int(kv.value, 16), kv.create_revision, kv.mod_revision)
