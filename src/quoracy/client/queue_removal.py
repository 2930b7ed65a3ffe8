"""Removing an item to have it: what `get` of a queue and of a priority queue have in common.

The item is deleted and returned in one transaction: there is no moment at which two can have it, and
none at which it is safe, either.  What is taken and cannot be handed over is put back or kept aside:
    cancelled     back to the front of its lane
    unreadable    aside, under `name/unreadable/`, for somebody to look at
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from quoracy.client.codec import Codec
from quoracy.client.context import Ground, Patience
from quoracy.client.queue_head import Taken, Taker
from quoracy.client.queue_items import Backlog, Window
from quoracy.client.write_outcome import Outcome
from quoracy.errors import Indeterminate, ValueUnreadable
from quoracy.store.model import (
    Compare,
    Delete,
    DeleteResult,
    KeyRange,
    KeyValue,
    Put,
    Txn,
    WatchBatch,
)

__all__ = ["Outlet"]

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
        if not outcome.cancelled() and isinstance(outcome.exception(), Indeterminate):
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
    if back.cancelled() or back.exception() is not None:
        why = "the connection was closed" if back.cancelled() else back.exception()
        _log.error("an item removed by a cancelled get may be lost (it was to be %r): %s", key, why)
