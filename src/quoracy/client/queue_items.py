"""Items under a name in the order in which they were committed: what the queues have in common.

    name/tail                       the number of the bucket that items are put into
    name/items/[lane/]bucket/id     an item; lanes come one after the other (priorities), buckets too

The order is that of commits: no clock of any machine has a say in it, and no counter is written by
everyone.  The store numbers commits itself (`create_revision`), but to sort a long queue by that costs
the server a pass over all of it for each get (plain etcd, 100,000 items: 120 to 150 ms).  So items lie
in buckets.  A put is a transaction that holds only while the bucket it names is the tail, so puts do
not get in each other's way; every 64 items or so one of them moves the tail on in the same
transaction.  What is in a bucket was therefore committed before anything in a later one, and only
within a bucket of about as many does anybody sort.

Invariants
    * Bucket first, then create_revision, then key: that is the order of commits, and within one
      transaction the order in which its items were given.
    * Nothing appears in a bucket before the tail any more; bucket 0 is the exception, the front of a
      lane, where a get that was cancelled gives its item back.
    * A look reads a window of buckets, never the whole queue: what it costs does not depend on how much
      waits behind.  (With lanes it begins at the first key there is, which plain etcd counts through.)
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from quoracy.client.context import Ground
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

__all__ = ["PUT_MANY_MAX", "Backlog", "Window"]

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
    """What a look saw: items in order, without their values, and the revision at which that was so.

    marked: of these, the ones with a mark, by `Backlog.relative`.
    barrier: keys that would come before them; if one appeared, these are not the first any more.  None:
        there is no such key.
    next_start: the bucket at which to look on; None: there is nothing behind.
    """

    kvs: tuple[KeyValue, ...]
    marked: frozenset[bytes]
    barrier: KeyRange | None
    revision: int
    next_start: int | None


@dataclass(frozen=True, slots=True)
class _Tail:
    bucket: int
    created: int
    moved: int


class Backlog:
    """The items of one queue, as one process sees them.

    marks: keys `<marks><bucket>/<id>/...` that belong to items; a look tells which items have one.
    """

    def __init__(self, ground: Ground, key: bytes, *, marks: bytes | None = None) -> None:
        self.items = key + b"/items/"
        self._ground, self._tail_key, self._marks = ground, key + b"/tail", marks
        self._tail: _Tail | None = None
        self._revision = 0
        # Where looks begin: every bucket before it, except the front, was seen empty behind the tail.
        self._head, self._head_of, self._span = _FIRST, 0, _SPAN

    def relative(self, key: bytes) -> bytes:
        """An item without the prefix that all have: `[lane/]bucket/id`."""
        return key[len(self.items) :]

    def front_key(self, key: bytes) -> bytes:
        """Where an item goes that is given back: to the front of its lane."""
        group, _, id = key.rpartition(b"/")
        return b"%b/%b/%b" % (group.rpartition(b"/")[0], _number(_FRONT), id)

    # -- putting -----------------------------------------------------------------------------

    async def put(self, values: Sequence[bytes], *, lane: bytes = b"") -> int:
        """Put items at the end, all in one transaction; the revision of it."""
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
                Put(b"%b%b%b/%b-%02x" % (self.items, lane, bucket, id, at), value)
                for at, value in enumerate(values)
            ),
        )
        return result.revision

    async def commit(self, count: int, make: Callable[[bytes], tuple[Op, ...]]) -> TxnResult:
        """Carry out what `make` makes for the bucket at the tail; it puts `count` items.

        Sent again only if the store answered that the tail had moved, which is to say that many others
        got through.
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
            result = await self._ground.write(txn)
            self._revision = max(self._revision, result.revision)
            if result.succeeded:
                if moving:
                    self._tail = _Tail(bucket, tail.created, result.revision)
                return result
            tail = self._tail_in(result) or await self._find_tail()

    async def _find_tail(self) -> _Tail:
        """The tail; on the first put of all, it is made."""
        first = Put(self._tail_key, _number(_FIRST))
        try:
            result = await self._ground.write(
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
        found = _range_in(result, 0).kvs
        self._tail = _tail_of(found[0]) if found else None
        return self._tail

    # -- looking -----------------------------------------------------------------------------

    async def look(self, start: int | None = None) -> Window:
        """The first items there are, a window of them; or those from the bucket `start` on."""
        while True:
            begin = self._head if start is None else start
            window, tail = await self._window(begin, begin + self._span)
            if tail is not None and tail.created != self._head_of:
                # Somebody deleted the queue, and it began again.
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
            # Nothing can appear there any more.  Twice as far each time: a gap costs its logarithm.
            if start is None:
                self._head = window.next_start
            else:
                start = window.next_start
            self._span = min(self._span * 2, _SPAN_MAX)

    async def look_in_lanes(self) -> Window:
        """The first items of the first lane that has any."""
        whole = KeyRange.prefix(self.items)
        found = await self._ground.store.range(whole, limit=_PAGE, keys_only=True)
        kvs = await self._first_of(found)
        if kvs:
            lane = self._lane_of(kvs[0].key)
            kvs = tuple(kv for kv in kvs if self._lane_of(kv.key) == lane)
        barrier = KeyRange(self.items, _group_of(kvs[0].key)) if kvs else None
        return Window(kvs, frozenset(), barrier, found.revision, None)

    async def count(self) -> int:
        """How many items there are."""
        counted = await self._ground.store.range(KeyRange.prefix(self.items), count_only=True)
        return counted.count

    async def _window(self, begin: int, end: int) -> tuple[Window, _Tail | None]:
        upto = self.items + _number(end)
        front = KeyRange.prefix(self.items + _number(_FRONT) + b"/")
        ranges = [
            Range(self._tail_key),
            Range(front, limit=_PAGE, sort_by=SortTarget.CREATE, keys_only=True),
            Range(KeyRange(self.items + _number(begin), upto), limit=_PAGE, keys_only=True),
        ]
        if self._marks is not None:
            # Each belongs to an item in one of these buckets, so there are no more than these hold.
            ranges.append(Range(_between(self._marks, begin, end), keys_only=True))
        result = await self._ground.store.txn(Txn(then=tuple(ranges)))
        found_tail, in_front, found = _range_in(result, 0), _range_in(result, 1), _range_in(result, 2)
        tail = _tail_of(found_tail.kvs[0]) if found_tail.kvs else None
        kvs = _in_order(in_front.kvs) or await self._first_of(found)
        barrier = None if in_front.kvs or self._marks is not None else front
        next_start = end if tail is not None and tail.bucket >= end else None
        if kvs and found.more:
            next_start = max(begin, self._bucket_of(kvs[-1].key) + 1)
        marked: frozenset[bytes] = frozenset()
        if self._marks is not None:
            cut = len(self._marks)
            marked = frozenset(kv.key[cut:].rpartition(b"/")[0] for kv in _range_in(result, 3).kvs)
        return Window(kvs, marked, barrier, result.revision, next_start), tail

    async def _first_of(self, found: RangeResult) -> tuple[KeyValue, ...]:
        """Whole buckets out of a page, in order: one that was cut may lack its oldest item."""
        if not found.more:
            return _in_order(found.kvs)
        last = _group_of(found.kvs[-1].key)
        whole = [kv for kv in found.kvs if _group_of(kv.key) != last]
        if whole:
            return _in_order(whole)
        # One bucket with more than a page, put by many at once: its oldest.  Of the last transaction
        # among them some items may be missing, so that one is left out; no transaction fills a page.
        # Whoever looks for items without a mark needs them all.
        oldest = await self._ground.store.range(
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
        """Choose the window so that it holds some hundred items, whatever the buckets hold."""
        if count >= _PAGE // 2:
            self._span = max(1, self._span // 2)
        elif count < _PAGE // 8:
            self._span = min(self._span * 2, 64)
        else:
            self._span = min(self._span, 64)

    def _bucket_of(self, key: bytes) -> int:
        return int(_group_of(key)[:-1].rpartition(b"/")[2], 16)

    def _lane_of(self, key: bytes) -> bytes:
        return self.relative(key).rpartition(b"/")[0].rpartition(b"/")[0]


def _number(bucket: int) -> bytes:
    return b"%012x" % bucket


def _between(prefix: bytes, begin: int, end: int) -> KeyRange:
    return KeyRange(prefix + _number(begin), prefix + _number(end))


def _group_of(key: bytes) -> bytes:
    """The bucket of an item, with its lane, as a prefix."""
    return key[: key.rindex(b"/") + 1]


def _in_order(kvs: Sequence[KeyValue]) -> tuple[KeyValue, ...]:
    return tuple(sorted(kvs, key=lambda kv: (_group_of(kv.key), kv.create_revision, kv.key)))


def _tail_of(kv: KeyValue) -> _Tail:
    return _Tail(int(kv.value, 16), kv.create_revision, kv.mod_revision)


def _range_in(result: TxnResult, at: int) -> RangeResult:
    found = result.results[at]
    assert isinstance(found, RangeResult)
    return found
