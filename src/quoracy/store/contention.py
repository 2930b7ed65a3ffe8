"""The queue under a name that locks and elections are made of, on the `Store` contract alone.

Everyone who wants in puts one key, `name/<lease id in hex>`, attached to a lease.  The oldest key
(least create_revision) is the owner; everyone else waits for the one right before it, and only for that
one, so a release wakes one waiter and not all of them.  A process that dies loses the lease, and with
it the key.
The layout is etcd's [client/v3/concurrency], so Quoracy's recipes and etcd's meet in one queue.

    place = await join(store, b"jobs/nightly", lease)
    try:
        await wait_first(store, place)              # now it is ours: place.token is the fencing token
        ...
    finally:
        await leave(store, place)

Invariants
    * A lease has at most one place under a name: joining again finds the place it has.
    * Ownership is only reported from one revision at which our own key was there and no older one was.
      [etcd#11456 is what happens otherwise]
    * Nothing here deletes or overwrites a key that another caller made: every write is guarded by the
      place's create_revision.
    * No clock and no task of its own: waiting is a watch, and keeping the lease alive is the caller's.
      A cancelled `join` may have joined, as any cancelled write may have happened: a caller that gives
      up must finish it and then leave.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

import msgspec

from quoracy.errors import Compacted, InvalidRequest, LeaseLost
from quoracy.store.api import Store
from quoracy.store.model import (
    Compare,
    CompareTarget,
    Delete,
    KeyRange,
    KeyValue,
    Put,
    PutResult,
    Range,
    RangeResult,
    Relation,
    Revision,
    SortTarget,
    Txn,
    TxnResult,
)

__all__ = [
    "Owner",
    "Place",
    "join",
    "joining",
    "joining_if_free",
    "leave",
    "leaving",
    "observe",
    "owner",
    "place_key",
    "place_of",
    "proclaim",
    "queue_of",
    "wait_by_watching",
    "wait_first",
]


class Place(msgspec.Struct, frozen=True, gc=False):
    """A place in the queue.

    token: the key's create_revision.  It is what orders the queue, and since each later owner's is
        larger it is the fencing token to give to whatever the lock protects.
    value: what the key held when it was joined.
    revision: the store's revision that `join` saw.
    was_first: whether it owned the name then already; if not, `wait_first`.
    """

    name: bytes
    key: bytes
    lease: int
    token: int
    value: bytes
    revision: Revision
    was_first: bool


class Owner(msgspec.Struct, frozen=True):
    """Who owns a name: the key with the owner's value, and the store's revision at which it did."""

    kv: KeyValue
    revision: Revision


def place_key(name: bytes, lease: int) -> bytes:
    """The key of a lease's place under a name."""
    return b"%b/%b" % (name, format(lease, "x").encode())


async def join(store: Store, name: bytes, lease: int, value: bytes = b"") -> Place:
    """Take a place at the end of the queue, or find the one this lease has already.

    A place that was there keeps its value; `proclaim` changes it.  Raises `LeaseNotFound`.
    """
    if not lease:
        raise InvalidRequest("a place in a queue needs a lease, or nobody would free it. Grant one.")
    key = place_key(name, lease)
    return place_of(await store.txn(joining(name, key, lease, value)), name, key, lease, value)


def joining(name: bytes, key: bytes, lease: int, value: bytes) -> Txn:
    """What `join` asks of the store; `place_of` reads the answer.  `key` is one under the name."""
    first = _oldest(name)
    return Txn((Compare.missing(key),), (Put(key, value, lease), first), (Range(key), first))


def place_of(result: TxnResult, name: bytes, key: bytes, lease: int, value: bytes) -> Place:
    """The place that the answer to `joining` shows."""
    mine, oldest = result.results
    assert isinstance(oldest, RangeResult)
    token: int = result.revision
    if not isinstance(mine, PutResult):
        assert isinstance(mine, RangeResult)
        token, value = mine.kvs[0].create_revision, mine.kvs[0].value
    return Place(
        name,
        key,
        lease,
        token,
        value,
        result.revision,
        was_first=oldest.kvs[0].create_revision == token,
    )


def joining_if_free(name: bytes, key: bytes, lease: int, value: bytes) -> Txn:
    """Join only if nobody is in the queue; `succeeded` tells, and then the result's revision is the
    token.
    """
    nobody = Compare(queue_of(name), CompareTarget.CREATE, Relation.EQUAL, 0)
    return Txn((nobody,), (Put(key, value, lease),))


async def wait_first(store: Store, place: Place) -> Revision:
    """Wait until the place is the first of its queue; the revision at which that was seen.

    Raises `LeaseLost` if the place is gone: its lease ended, or the key was deleted.  That is
    looked at whenever the one before it leaves, so a caller whose lease ends meanwhile and who should
    not wait for that cancels this.
    """
    seen = await store.wait_first(place.name, place.key, place.token)
    if seen is None:
        raise LeaseLost(
            f"the place {place.key!r} in the queue is gone: its lease {place.lease:x} ended or the "
            "key was deleted. Join again, with a lease that is kept alive."
        )
    return seen


async def wait_by_watching(store: Store, name: bytes, key: bytes, token: int) -> Revision | None:
    """`Store.wait_first` on top of the rest of the contract."""
    while True:
        result = await store.txn(Txn(then=(Range(key), _last_before(name, token))))
        mine, before = result.results
        assert isinstance(mine, RangeResult)
        assert isinstance(before, RangeResult)
        if not mine.kvs or mine.kvs[0].create_revision != token:
            return None
        if not before.kvs:
            return result.revision
        await _wait_deleted(store, before.kvs[0].key, result.revision)


async def leave(store: Store, place: Place) -> Revision:
    """Give the place up, first or not.  Does nothing if it is gone already."""
    return (await store.txn(leaving(place))).revision


def leaving(place: Place) -> Txn:
    """What `leave` asks of the store."""
    return Txn((Compare.create_revision(place.key, "=", place.token),), (Delete(place.key),))


async def proclaim(store: Store, place: Place, value: bytes) -> Revision:
    """Change the value of the place without losing it.  Raises `LeaseLost` if it is gone."""
    is_ours = Compare.create_revision(place.key, "=", place.token)
    result = await store.txn(Txn((is_ours,), (Put(place.key, value, place.lease),)))
    if not result.succeeded:
        raise LeaseLost(
            f"the place {place.key!r} with token {place.token} is gone, so its value cannot change. "
            "Join again."
        )
    return result.revision


async def owner(store: Store, name: bytes) -> Owner | None:
    """Who owns the name now, if anybody."""
    found = await _first(store, name)
    return Owner(found.kvs[0], found.revision) if found.kvs else None


async def observe(store: Store, name: bytes) -> AsyncGenerator[Owner, None]:
    """The owner, then each change of owner or of the owner's value, for ever, in order.

    No owner is left out, however short its time, as long as the history since the last one told is
    kept; after that it goes on with the newest.  Close it when done (`contextlib.aclosing`): it holds
    a watch.
    """
    told: tuple[int, int] | None = None
    while True:
        found = await store.range(queue_of(name))
        queue = {kv.key: kv for kv in found.kvs}
        revision = found.revision
        try:
            async with store.watch(queue_of(name), after=revision) as batches:
                while True:
                    first = min(queue.values(), key=lambda kv: kv.create_revision, default=None)
                    if first is not None and (first.create_revision, first.mod_revision) != told:
                        told = first.create_revision, first.mod_revision
                        yield Owner(first, revision)
                    batch = await anext(batches)
                    revision = batch.revision
                    for event in batch.events:
                        if event.kv.version:
                            queue[event.kv.key] = event.kv
                        else:
                            queue.pop(event.kv.key, None)
        except Compacted:
            continue  # too slow for the history that is kept: the next read shows where things stand


def queue_of(name: bytes) -> KeyRange:
    """The keys of everyone in the queue under a name."""
    return KeyRange.prefix(name + b"/")


def _oldest(name: bytes) -> Range:
    return Range(queue_of(name), limit=1, sort_by=SortTarget.CREATE)


def _last_before(name: bytes, token: int) -> Range:
    return Range(
        queue_of(name),
        limit=1,
        sort_by=SortTarget.CREATE,
        descending=True,
        keys_only=True,
        create_revision_max=token - 1,
    )


async def _first(store: Store, name: bytes) -> RangeResult:
    return await store.range(queue_of(name), limit=1, sort_by=SortTarget.CREATE)


async def _wait_deleted(store: Store, key: bytes, after: int) -> None:
    try:
        async with store.watch(key, after=after, puts=False) as batches:
            while not (await anext(batches)).events:
                pass
    except Compacted:
        return  # the caller reads again, and sees whether it is gone
