"""Semaphore: a limited amount at a time, shared by all clients; in order of arrival.

    async with quoracy.connect("memory:") as q:
        slots = q.semaphore("render-slots", 3)
        async with slots:                                  # one of three
            await render(small)
        async with slots.hold(weight=3) as share:          # all of it
            await render(large, fence=share.token)

What it promises
    * The shares that are held never exceed the size.  Only a `resize` to less than what is held leaves
      more, and then nothing is granted until it fits again; no holder is evicted.
    * There is no starvation: shares are granted in order of arrival.  While a heavy one waits, a light
      one that came later waits too, although there would be room for it.
    * Tokens grow strictly in the order in which shares are granted.
    * A session that is lost gives its shares back, and its holders know it before.
    * No herd effect: one waits for room, each of the others only for the one before it.

How it lies in the store
    name/holders/<session>-<n>    a share that is held; its create_revision is the token
    name/size                     the size, as a number
    name/waiting/<session>-<n>    a waiter, oldest first

    Only the oldest of `waiting` may become a holder, in a transaction that compares everything the
    decision depends on: that it is still the oldest, the size, and that no holder is newer than what
    it has seen.  (A holder that left since does no harm.)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import msgspec

from quoracy.client.codec import codec_of
from quoracy.client.compare_and_swap import CompareAndSwap, range_at
from quoracy.client.context import Context
from quoracy.client.held import Enterable, Held, Holding
from quoracy.client.queue_entry import PAGE, Attempt, acquire, in_a_session, newest, read_all, read_rest
from quoracy.client.session import Session
from quoracy.errors import Compacted, InvalidRequest
from quoracy.store.model import (
    Compare,
    Delete,
    KeyRange,
    KeyValue,
    Op,
    Put,
    Range,
    SortTarget,
    Txn,
    WatchBatch,
)

__all__ = ["Semaphore", "SemaphoreContender", "Share"]


@dataclass(frozen=True, slots=True)
class SemaphoreContender:
    """A client that holds a share or waits for one.

    identity: the identity of its connection.
    token: its fencing token; None while it waits.
    """

    identity: str
    weight: int
    token: int | None
    lease: int
    key: bytes

    @property
    def is_holding(self) -> bool:
        return self.token is not None


class Share(Held):
    """A share of a semaphore that is held.  `weight` is its size."""

    def __init__(
        self, context: Context, session: Session, *, name: str, key: bytes, token: int, weight: int
    ) -> None:
        super().__init__(context, session, name=name, key=key, token=token, what=_what(weight, name))
        self.weight = weight


class Semaphore(Enterable[Share]):
    """A semaphore by name; one object may be shared, each acquisition has its own `Share`.

    size: how much may be held at a time.  It is kept in the store: the first client that names one sets
        it, and a client that names another later gets an `InvalidRequest` at the first use.  None: the
        size in the store.
    cancel_on_loss: when the share is lost inside the block, cancel the body and raise `LockLost`; in
        coroutines only.  False: only `share.lost` is set, and the block raises at its end.
    """

    def __init__(
        self, context: Context, name: str, size: int | None = None, *, cancel_on_loss: bool = True
    ) -> None:
        super().__init__()
        if size is not None:
            _check_positive("the size of the", name, size)
        self.name = name
        self._context, self._size, self._cancel_on_loss = context, size, cancel_on_loss
        self._agreed = size is None
        self._keys = _Keys(context.key(name))

    # -- acquiring ---------------------------------------------------------------------------

    async def acquire(self, weight: int = 1, *, timeout: float | None = None) -> Share:
        """Wait for a share.  The caller releases it; the block `slots.hold()` does both.

        Raises `TimedOut`; `InvalidRequest` for more than the size, also if the size shrinks to that
        while it waits; `Unavailable` or `Indeterminate` if the store did not answer, and then nothing
        is held.
        """
        _check_positive("the weight for the", self.name, weight)
        once, try_once = partial(self._acquire, weight), partial(self._try, weight)
        return await acquire(self._context, timeout, once, try_once, what=_what(weight, self.name))

    async def try_acquire(self, weight: int = 1) -> Share | None:
        """Take a share if there is room and no client waits; None otherwise, at once.

        Raises `TimedOut` if there is no session at the moment.
        """
        _check_positive("the weight for the", self.name, weight)
        now, what = self._context.deadline(0), _what(weight, self.name)
        return await in_a_session(self._context, now, partial(self._try, weight), what=what)

    def hold(self, weight: int = 1, *, timeout: float | None = None) -> Holding[Share]:
        """A block in which a share is held: `slots.hold(weight=2, timeout=5)`."""
        return Holding(
            lambda: self.acquire(weight, timeout=timeout), cancel_on_loss=self._cancel_on_loss
        )

    def _holding(self) -> Holding[Share]:
        return self.hold()

    # -- size, holders and waiters -----------------------------------------------------------

    async def size(self) -> int:
        """How much may be held at a time, now.  Raises `InvalidRequest` if no client has set it."""
        return (await self._look()).size

    async def resize(self, size: int) -> None:
        """Change how much may be held at a time, for all clients.

        A larger size is granted to waiters at once.  With less than what is held no holder is evicted,
        and nothing is granted until it fits.  A waiter whose weight is more than the new size gets an
        `InvalidRequest` when its turn comes.
        """
        _check_positive("the size of the", self.name, size)
        put = Put(self._keys.size, _sizes.encode(size))
        await self._context.write(Txn((), (put,)))
        self._agreed = True

    async def holders(self) -> tuple[SemaphoreContender, ...]:
        """The holders of shares, in the order in which they were granted."""
        return tuple(each for each in await self.contenders() if each.is_holding)

    async def contenders(self) -> tuple[SemaphoreContender, ...]:
        """The holders of shares, then the waiters, in order."""
        self._context.check()
        _, found = await read_all(self._context, self._keys.holders, self._keys.waiting)
        ordered = [sorted(kvs, key=lambda kv: kv.create_revision) for kvs in found]
        return tuple(_contender(kv, at == 0) for at, kvs in enumerate(ordered) for kv in kvs)

    # -- one attempt -------------------------------------------------------------------------

    async def _acquire(self, weight: int, session: Session) -> Share:
        """Take a share if there is room and no client waits; otherwise join the queue.

        Both are one transaction, so that it joins if it came too late.
        """
        keys = self._keys
        view = await self._look(weight)
        with Attempt(self._context, session, keys.waiting.start, keys.holders.start) as attempt:
            waiting, holder = attempt.keys
            entry = _entries.encode(_Entry(self._context.identity, weight))
            joining: tuple[Op, ...] = (Put(waiting, entry, session.id), newest(keys.waiting, limit=2))
            if view.first_waiting is None and view.room >= weight:
                taking = (Put(holder, entry, session.id),)
                result = await attempt.send(Txn((*view.unchanged(keys), keys.nobody), taking, joining))
                if result.succeeded:
                    return self._share(session, attempt, result.revision, weight)
            else:
                result = await attempt.send(Txn((), joining))
            found, joined = range_at(result, -1).kvs, result.revision
            last = found[1] if len(found) > 1 else None
            await attempt.wait_turn(keys.waiting, token=joined, last=last, revision=joined)
            token: int | None = None
            while token is None:
                # If the answer to a grant was lost the next look shows it; it cannot be granted twice.
                token = await self._context.retry(
                    lambda: self._grant(session, attempt, entry, weight, joined), self.name
                )
            return self._share(session, attempt, token, weight)

    async def _try(self, weight: int, session: Session) -> Share | None:
        keys = self._keys
        swap = CompareAndSwap(self._context, _what(weight, self.name), None)
        while True:
            view = await self._look(weight)
            if view.first_waiting is not None or view.room < weight:
                return None
            with Attempt(self._context, session, keys.holders.start) as attempt:
                entry = _entries.encode(_Entry(self._context.identity, weight))
                put = Put(attempt.keys[0], entry, session.id)
                result = await attempt.send(Txn((*view.unchanged(keys), keys.nobody), (put,)))
                if result.succeeded:
                    return self._share(session, attempt, result.revision, weight)
            await swap.backoff()  # there may be room for another share all the same

    async def _grant(
        self, session: Session, attempt: Attempt, entry: bytes, weight: int, joined: int
    ) -> int | None:
        """As the first waiter, wait until there is room, and take it: the token; None: try again."""
        waiting, holder = attempt.keys
        view = await self._look(weight)
        if holder in view.holders:
            return view.holders[holder][1]
        if view.first_waiting != waiting:
            raise attempt.gone()
        if not await self._until_room(view, weight):
            return None
        granting = (Delete(waiting), Put(holder, entry, session.id))
        still = Compare.create_revision(waiting, "=", joined)
        result = await attempt.send(Txn((*view.unchanged(self._keys), still), granting))
        return result.revision if result.succeeded else None

    async def _until_room(self, view: _View, weight: int) -> bool:
        """Follow the holders and the size from the revision of the view; False: look again."""
        if view.room >= weight:
            return True
        try:
            async with self._context.store.watch(self._keys.decisive, after=view.revision) as batches:
                while view.room < weight:
                    view.apply(await anext(batches), self._keys)
                    self._check_fits(weight, view.size)
        except Compacted:
            return False
        return True

    async def _look(self, weight: int = 1) -> _View:
        """The size, the holders and the first waiter at one revision; a missing size is set."""
        context, keys = self._context, self._keys
        context.check()
        reading = Txn(then=(Range(keys.size), keys.first_waiting, Range(keys.holders, limit=PAGE)))
        while True:
            result = await context.store.txn(reading)
            size, waiting, page = (range_at(result, at) for at in range(3))
            if not size.kvs:
                await self._set_size()
                continue
            try:
                holders = await read_rest(context, keys.holders, page, at=result.revision)
            except Compacted:
                continue  # reading took longer than history is kept
            view = _View(result.revision, size.kvs[0], holders, waiting.kvs)
            self._agree(view.size)
            self._check_fits(weight, view.size)
            return view

    async def _set_size(self) -> None:
        """Set the size that was named, unless another client sets one first."""
        if self._size is None:
            raise InvalidRequest(
                f"the semaphore {self.name} has no size yet. Make it with one, "
                f'q.semaphore("{self.name}", 3), or resize it, before it is used without.'
            )
        put = Put(self._keys.size, _sizes.encode(self._size))
        await self._context.write(Txn((Compare.missing(self._keys.size),), (put,)))

    def _agree(self, size: int) -> None:
        """At the first use, the size that was named must be the one in the store."""
        if not self._agreed and self._size != size:
            raise InvalidRequest(
                f"the semaphore {self.name} has the size {size}, and it was asked for with "
                f"{self._size}. Name the same size, or none to take it as it is; resize changes it for "
                "everyone."
            )
        self._agreed = True

    def _check_fits(self, weight: int, size: int) -> None:
        if weight > size:
            raise InvalidRequest(
                f"{_what(weight, self.name)} cannot be granted: its size is {size}. "
                "Ask for less, or resize it."
            )

    def _share(self, session: Session, attempt: Attempt, token: int, weight: int) -> Share:
        attempt.check()
        key = attempt.keys[-1]
        return Share(self._context, session, name=self.name, key=key, token=token, weight=weight)

    def __repr__(self) -> str:
        return f"<Semaphore {self.name}>"


class _Keys:
    """The keys of one semaphore, and the reads of them."""

    __slots__ = ("decisive", "first_waiting", "holders", "nobody", "size", "waiting")

    def __init__(self, name: bytes) -> None:
        self.size = name + b"/size"
        self.holders = KeyRange.prefix(name + b"/holders/")
        self.waiting = KeyRange.prefix(name + b"/waiting/")
        # The holders and the size are neighbours, so that one watch follows both.
        self.decisive = KeyRange(self.holders.start, self.size + b"\0")
        self.nobody = Compare.create_revision(self.waiting, "=", 0)
        self.first_waiting = Range(self.waiting, limit=1, sort_by=SortTarget.CREATE, keys_only=True)


class _View:
    """The size and the holders as they were at one revision, and as they change."""

    __slots__ = ("_held", "_size_revision", "first_waiting", "holders", "revision", "size")

    def __init__(
        self,
        revision: int,
        size: KeyValue,
        holders: tuple[KeyValue, ...],
        waiting: tuple[KeyValue, ...],
    ) -> None:
        self.revision = revision
        self.size, self._size_revision = _sizes.decode(size.key, size.value), size.mod_revision
        self.first_waiting = waiting[0].key if waiting else None
        self.holders = {kv.key: _weigh(kv) for kv in holders}
        self._held = sum(weight for weight, _ in self.holders.values())

    @property
    def room(self) -> int:
        """How much may be granted; negative after the size was reduced."""
        return self.size - self._held

    def apply(self, batch: WatchBatch, keys: _Keys) -> None:
        """Apply changes.  (If the size is deleted, `unchanged` will not hold.)"""
        self.revision = batch.revision
        for event in batch.events:
            kv = event.kv
            if kv.key == keys.size:
                if kv.version:
                    self.size, self._size_revision = _sizes.decode(kv.key, kv.value), kv.mod_revision
            elif keys.holders.contains(kv.key):
                weight, _ = self.holders.pop(kv.key, (0, 0))
                self._held -= weight
                if kv.version:
                    self.holders[kv.key] = _weigh(kv)
                    self._held += self.holders[kv.key][0]

    def unchanged(self, keys: _Keys) -> tuple[Compare, Compare]:
        """The condition that the size is the same, and that there is no newer holder."""
        return (
            Compare.mod_revision(keys.size, "=", self._size_revision),
            Compare.create_revision(keys.holders, "<", self.revision + 1),
        )


class _Entry(msgspec.Struct, frozen=True):
    """The value of a contender's key."""

    identity: str
    weight: int


_entries = codec_of(_Entry)
_sizes = codec_of(int)


def _weigh(kv: KeyValue) -> tuple[int, int]:
    """The weight and the token of a holder."""
    return _entries.decode(kv.key, kv.value).weight, kv.create_revision


def _contender(kv: KeyValue, is_holding: bool) -> SemaphoreContender:
    entry = _entries.decode(kv.key, kv.value)
    token = kv.create_revision if is_holding else None
    return SemaphoreContender(entry.identity, entry.weight, token, kv.lease, kv.key)


def _check_positive(what: str, name: str, number: int) -> None:
    if number < 1:
        raise InvalidRequest(f"{what} semaphore {name} is {number}. Give a whole number, 1 or more.")


def _what(weight: int, name: str) -> str:
    return f"a share of {weight} of the semaphore {name}"
