"""Taking the first item of a backlog, by many at once, and waiting for one where there is none.

    look: the first items, a few hundred, without their values
    take: one transaction that takes the first of them that is still there

Several consumers that want the same head do not fight for it: the transaction of each is a chain, take
the first, else the second, else the third, so that a loser has the next item with the same request.
The chain is one link long as long as nobody else is faster, and grows with each item that was gone.

Who waits on an empty queue watches it.  An item wakes one task in each process that waits, not each
task; who was woken and came too late pauses for a random moment the next time and looks before it
takes, so that of many processes few try for one item.  Nobody depends on another consumer: one that is
stopped holds up nobody.

Invariants
    * A timeout never loses an item: it ends looking and waiting, not a take that is on its way.
    * What is taken when nobody is there any more to have it (the task was cancelled) is undone.
    * At most `ahead_max` items are remembered between takes, and none of their values.

`get` of a queue and of a priority queue removes the item that it takes: deleted and returned in one
transaction, so there is no moment at which two consumers can have it, and none at which it is safe,
either.  What is taken and cannot be handed over is put back or kept aside:
    cancelled     back to the front of its priority
    unreadable    aside, under `name/unreadable/`, for somebody to look at
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Generic, Protocol, TypeVar

from quoracy.client.codec import Codec
from quoracy.client.context import Ground, Patience
from quoracy.client.in_flight import Outcome
from quoracy.client.queue_items import Backlog, Window
from quoracy.client.session import Session
from quoracy.errors import Compacted, Indeterminate, StoreClosed, TimedOut, Unavailable, ValueUnreadable
from quoracy.store.model import (
    Compare,
    Delete,
    DeleteResult,
    KeyRange,
    KeyValue,
    OpResult,
    Put,
    Txn,
    TxnResult,
    WatchBatch,
)

__all__ = ["Outlet", "Taken", "Taker", "Undertaking"]

_log = logging.getLogger(__name__)

_ASK_AGAIN_S = 0.5
# So many gone at once: what we remember is old, another look is cheaper than trying them all.
_STALE = 4
_PAUSE_S_FIRST = 0.002
_PAUSE_S_MAX = 0.05


@dataclass(frozen=True, slots=True)
class Taken:
    """An item that is ours now: as it was seen, and what the operations that took it returned."""

    kv: KeyValue
    results: tuple[OpResult, ...]
    revision: int


class Undertaking(Protocol):
    """How one take is done, and what becomes of it if nobody waits for it any more."""

    def links(self, kvs: Sequence[KeyValue]) -> list[Txn]:
        """For each of these items what takes it, without an `otherwise`: they are sent as one chain."""
        ...

    def missed(self) -> None:
        """None of them was there to be taken."""
        ...

    def abandoned(self, outcome: Outcome, taken: Taken | None) -> Outcome | None:
        """The task was cancelled, and this is what came of it; the write that undoes it, if any."""
        ...


class Taker:
    """The head of one queue, as one process sees it; many tasks may take from it.

    look: read the first items.
    watched, wakes: what to watch while there are none, and whether a batch is worth another look.
    deletes: whether deletions may be worth one.
    fresh_s: how long what a look showed is relied upon, where items may come back to their old place.
    """

    def __init__(
        self,
        ground: Ground,
        what: str,
        *,
        look: Callable[[], Awaitable[Window]],
        watched: KeyRange,
        wakes: Callable[[WatchBatch], bool],
        deletes: bool = False,
        chain_max: int = 16,
        ahead_max: int = 256,
        fresh_s: float | None = None,
    ) -> None:
        self._ground, self._what = ground, what
        self._look, self._watched, self._wakes, self._deletes = look, watched, wakes, deletes
        self._chain_max, self._ahead_max, self._fresh_s = chain_max, ahead_max, fresh_s
        self._ahead: deque[KeyValue] = deque()
        self._barrier: KeyRange | None = None
        self._seen_at = 0.0
        self._looking = asyncio.Lock()
        self._on_their_way = 0
        self._quiet: asyncio.Future[None] | None = None
        self._chain = 1
        self._pause_s = 0.0
        self._rng = random.Random()

    async def take(
        self, undertaking: Undertaking, patience: Patience, *, session: Session | None = None
    ) -> Taken:
        """Wait for an item and take it.  Raises `TimedOut`; `SessionLost` if a session is given."""
        while True:
            if not self._knows_some():
                with self._ground.waiting(self._what, patience, session):
                    async with self._looking:
                        if not self._knows_some():
                            await self._wait_found()
            taken = await self._take_first(undertaking)
            if taken is not None:
                return taken

    async def try_take(self, undertaking: Undertaking) -> Taken | None:
        """Take the first item if there is one."""
        while True:
            if not self._knows_some():
                window = await self._see()
                if not window.kvs:
                    return None
            taken = await self._take_first(undertaking)
            if taken is not None:
                return taken

    async def take_within(
        self, undertaking: Undertaking, patience: Patience, *, session: Session | None = None
    ) -> Taken:
        """`take`, or with no time at all: now or not at all."""
        if patience.timeout > 0:
            return await self.take(undertaking, patience, session=session)
        taken = await self.try_take(undertaking)
        if taken is None:
            raise TimedOut(self._what, timeout_s=patience.timeout)
        return taken

    def forget(self) -> None:
        """Look again before the next take: an item came back to its place."""
        self._ahead.clear()

    # -- looking and waiting -----------------------------------------------------------------

    def _knows_some(self) -> bool:
        """Whether there is something ahead that can be relied upon."""
        if self._fresh_s is not None and self._ground.clock.now() - self._seen_at > self._fresh_s:
            self._ahead.clear()
        return bool(self._ahead)

    async def _see(self) -> Window:
        """Look, when nothing of our own is on its way: what a take removes would still be seen, what a
        cancelled one gives back would not.
        """
        while self._on_their_way:
            if self._quiet is None:
                self._quiet = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._quiet)
        window = await self._look()
        self._seen_at = self._ground.clock.now()
        if not self._ahead:
            self._ahead.extend(window.kvs[: self._ahead_max])
            self._barrier = window.barrier
        return window

    async def _wait_found(self) -> None:
        """Wait until there is something ahead.  Only the first look raises that it cannot be done."""
        window = await self._see()
        while not self._ahead:
            try:
                await self._wait_change(window.revision)
                if self._pause_s:
                    await self._ground.clock.sleep(self._rng.uniform(0, self._pause_s))
                window = await self._see()
            except StoreClosed:
                raise
            except (Unavailable, Indeterminate) as error:
                _log.info("%s: waiting goes on: %s", self._what, error)
                await self._ground.clock.sleep(_ASK_AGAIN_S)

    async def _wait_change(self, after: int) -> None:
        try:
            watch = self._ground.store.watch(self._watched, after=after, deletes=self._deletes)
            async with watch as batches:
                while not self._wakes(await anext(batches)):
                    pass
        except Compacted:
            return  # whether something came, the next look shows

    # -- taking ------------------------------------------------------------------------------

    async def _take_first(self, undertaking: Undertaking) -> Taken | None:
        """Take the first that is still there of a few; None: they were gone."""
        attempt = _Attempt(tuple(islice(self._ahead, self._chain)), self._barrier)
        if not attempt.tried:
            return None
        # Ours to try: other tasks begin with the next one.
        self._ahead.popleft()
        outcome = self._ground.writes.begin(attempt.txn(undertaking))
        self._sent(outcome)
        try:
            result = await outcome.settled()
        except asyncio.CancelledError:
            self._ahead.clear()  # what is given back comes before them
            outcome.add_done_callback(lambda done: self._abandoned(undertaking, attempt, done))
            raise
        except BaseException:
            self._ahead.clear()  # the first may still be there, and comes first
            raise
        taken = self._learn(result, attempt)
        if taken is None:
            undertaking.missed()
        return taken

    def _sent(self, write: Outcome) -> None:
        self._on_their_way += 1
        write.add_done_callback(self._answered)

    def _answered(self, _: object) -> None:
        self._on_their_way -= 1
        if not self._on_their_way and self._quiet is not None:
            self._quiet.set_result(None)
            self._quiet = None

    def _abandoned(self, undertaking: Undertaking, attempt: _Attempt, outcome: Outcome) -> None:
        taken = None
        if outcome.exception() is None:
            taken = self._learn(outcome.result(), attempt)
        undoing = undertaking.abandoned(outcome, taken)
        if undoing is not None:
            self._sent(undoing)

    def _learn(self, result: TxnResult, attempt: _Attempt) -> Taken | None:
        """What was taken, if anything; and that those before it are gone."""
        link = attempt.first_link(result)
        if link is None:
            self._ahead.clear()
            self._fared(well=False)
            return None
        tried = attempt.tried
        for rank, kv in enumerate(tried):
            if link.succeeded:
                self._gone(tried[1 : rank + 1])
                self._fared(well=rank == 0)
                return Taken(kv, link.results, result.revision)
            if link.results:
                link = _txn_in(link)
        if len(tried) >= _STALE:
            self._ahead.clear()
        else:
            self._gone(tried[1:])
        self._fared(well=False)
        return None

    def _gone(self, kvs: tuple[KeyValue, ...]) -> None:
        if kvs:
            gone = {kv.key for kv in kvs}
            self._ahead = deque(kv for kv in self._ahead if kv.key not in gone)

    def _fared(self, *, well: bool) -> None:
        """Whether the first that was tried was ours tells how many others are at it."""
        if well:
            self._chain = max(1, self._chain // 2)
            self._pause_s = self._pause_s / 2 if self._pause_s > _PAUSE_S_FIRST else 0.0
        else:
            self._chain = min(self._chain * 2, self._chain_max)
            self._pause_s = min(max(self._pause_s * 2, _PAUSE_S_FIRST), _PAUSE_S_MAX)


@dataclass(frozen=True, slots=True)
class _Attempt:
    """The items one take tries, in order, and the keys that must not be there before them."""

    tried: tuple[KeyValue, ...]
    barrier: KeyRange | None

    def txn(self, undertaking: Undertaking) -> Txn:
        chain: tuple[Txn, ...] = ()
        for link in reversed(undertaking.links(self.tried)):
            chain = (Txn(link.compares, link.then, chain),)
        first = chain[0]
        if self.barrier is None:
            return first
        nothing_before = Compare.create_revision(self.barrier, "=", 0)
        if len(self.tried) == 1:
            return Txn((*first.compares, nothing_before), first.then)
        return Txn((nothing_before,), chain)

    def first_link(self, result: TxnResult) -> TxnResult | None:
        """What became of the first item; None: something may have come before it, look again."""
        if self.barrier is None or (len(self.tried) == 1 and result.succeeded):
            return result
        return _txn_in(result) if result.succeeded else None


def _txn_in(result: TxnResult) -> TxnResult:
    inner = result.results[0]
    assert isinstance(inner, TxnResult)
    return inner


_log = logging.getLogger(__name__)

T = TypeVar("T")


class Outlet(Generic[T]):
    """Where items of one queue come out.

    what: what is waited for, for messages.
    look: reads the head of the queue.
    """

    def __init__(
        self,
        ground: Ground,
        backlog: Backlog,
        codec: Codec[T],
        *,
        key: bytes,
        name: str,
        what: str,
        look: Callable[[], Awaitable[Window]],
    ) -> None:
        self._ground, self._backlog, self._codec = ground, backlog, codec
        self._name, self._look = name, look
        self._removal = _Removal(ground, backlog, codec, key)
        watched = KeyRange.prefix(backlog.items)
        self.taker = Taker(ground, what, look=look, watched=watched, wakes=_has_new_items)

    async def get(self, timeout: float | None) -> T:
        """Remove the first item and return it; wait for one if there is none."""
        self._ground.check()
        patience = Patience(self._ground.clock, timeout)
        try:
            taken = await self.taker.take_within(self._removal, patience)
        except Indeterminate as error:
            raise _unknown_get(self._name, error) from error
        return await self._removal.item_of(taken)

    async def try_get(self) -> T | None:
        """Remove the first item and return it; None if there is none."""
        self._ground.check()
        try:
            taken = await self.taker.try_take(self._removal)
        except Indeterminate as error:
            raise _unknown_get(self._name, error) from error
        return None if taken is None else await self._removal.item_of(taken)

    async def peek(self) -> T | None:
        """The first item, which stays; None if there is none."""
        self._ground.check()
        found = await self._read_first()
        return None if found is None else self._codec.decode(found.key, found.value)

    async def _read_first(self) -> KeyValue | None:
        """The first item with its value, as it was at one moment."""
        while True:
            window = await self._look()
            if not window.kvs:
                return None
            found = await self._ground.store.range(window.kvs[0].key)
            if found.kvs and found.kvs[0].create_revision == window.kvs[0].create_revision:
                return found.kvs[0]


class _Removal(Generic[T]):
    """How items of one queue are removed."""

    def __init__(self, ground: Ground, backlog: Backlog, codec: Codec[T], key: bytes) -> None:
        self._ground, self._backlog, self._codec = ground, backlog, codec
        self._aside = key + b"/unreadable/"

    def links(self, kvs: Sequence[KeyValue]) -> list[Txn]:
        """Delete an item, if it is that one still."""
        return [
            Txn(
                (Compare.create_revision(kv.key, "=", kv.create_revision),),
                (Delete(kv.key, prev_kv=True),),
            )
            for kv in kvs
        ]

    async def item_of(self, taken: Taken) -> T:
        """The item itself.  Raises `ValueUnreadable`, and keeps what it could not read."""
        kv = _removed(taken)
        try:
            return self._codec.decode(kv.key, kv.value)
        except ValueUnreadable:
            aside = self._aside + self._backlog.relative(kv.key)
            await self._ground.write(Txn(then=(Put(aside, kv.value),)))
            raise

    def missed(self) -> None:
        pass

    def abandoned(self, outcome: Outcome, taken: Taken | None) -> Outcome | None:
        """The task was cancelled: what was taken for it goes back."""
        if taken is not None:
            kv = _removed(taken)
            key = self._backlog.front_key(kv.key)
            back = self._ground.writes.begin(Txn((Compare.missing(key),), (Put(key, kv.value),)))
            back.add_done_callback(lambda done: _report(done, key))
            return back
        if isinstance(outcome.exception(), Indeterminate):
            _log.error("a cancelled get may have removed an item: %s", outcome.exception())
        return None


def _has_new_items(batch: WatchBatch) -> bool:
    """Whether a batch of a watch on items is worth a look."""
    return any(event.kv.version for event in batch.events)


def _unknown_get(name: str, error: Indeterminate) -> Indeterminate:
    """What a get has to say whose answer was lost."""
    return Indeterminate(
        f"the answer to a get from {name} was lost: an item may have been removed that nobody received "
        f"({error}). Get again for the next one; use a work queue where no item may be lost."
    )


def _removed(taken: Taken) -> KeyValue:
    deleted = taken.results[0]
    assert isinstance(deleted, DeleteResult)
    return deleted.prev_kvs[0]


def _report(back: Outcome, key: bytes) -> None:
    """What cannot be given back is lost; nobody is left to be told but the log."""
    if back.exception() is not None:
        why = back.exception()
        _log.error("an item removed by a cancelled get may be lost (it was to be %r): %s", key, why)
