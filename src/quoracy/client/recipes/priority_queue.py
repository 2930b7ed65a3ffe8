"""PriorityQueue: the most urgent first, and first in, first out among equals.

    async with quoracy.connect("memory:") as q:
        calls = q.priority_queue("calls", str)
        await calls.put("the cat is on the roof", priority=5)
        await calls.put("the roof is on fire", priority=1)
        call = await calls.get(timeout=5)                        # the roof is on fire

What it promises
    * A get takes an item of the smallest priority that exists at that moment: the store checks in the
      same transaction that nothing more urgent has come.
    * Within a priority the order is that of commits, as in a `Queue`.
    * Everything else as in a `Queue`: an item goes to one consumer at most, `timeout=` and cancellation
      lose none.
What it does not
    * There is no aging: as long as something more urgent comes, the rest waits.
    * As with `Queue`, an item is deleted from the store when `get` returns it, and a `get` that raises
      `Indeterminate` may have removed an item that no consumer got.
    * A look at the head of the queue asks the store for its first keys.  Quoracy has them at once;
      plain etcd counts the whole queue for it.  A look serves up to 256 gets from one priority.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from quoracy.client.context import Context
from quoracy.client.queue_head import QueueConsumer
from quoracy.errors import InvalidRequest

__all__ = ["PriorityQueue"]

T = TypeVar("T")

_HALF = 1 << 63


class PriorityQueue(QueueConsumer[T], Generic[T]):
    """A priority queue by name; one object may be shared.

    type: of the items: bytes, str, or anything msgspec can write as JSON.
    """

    def __init__(self, context: Context, name: str, type: type[T]) -> None:
        super().__init__(context, name, type, kind="priority queue", by_priority=True)

    async def put(self, item: T, *, priority: int) -> int:
        """Put an item behind those of its priority; the smaller the number, the more urgent.

        priority: any whole number of 64 bits, negative ones too.  Returns the revision of the store at
        which it is there.  Raises `Unavailable`: it was not put.  `Indeterminate`: it may have been.
        """
        return await self._put((item,), _prefix(priority))

    async def put_many(self, items: Sequence[T], *, priority: int) -> int:
        """Put items of one priority, all or none, with nothing between them; at most 127.

        Without items it does not ask the store, and returns 0.
        """
        return await self._put(items, _prefix(priority))


def _prefix(priority: int) -> bytes:
    """A priority as a prefix of keys, which sorts like the number."""
    if not -_HALF <= priority < _HALF:
        raise InvalidRequest(f"priority {priority} has more than 64 bits. Give a smaller number.")
    return b"%016x/" % (priority + _HALF)
