"""Queue: first in, first out, for producers and consumers in any number of processes.

    async with quoracy.connect("memory:") as q:
        jobs = q.queue("jobs", str)
        await jobs.put("paint the fence")
        job = await jobs.get(timeout=5)

What it promises
    * The order is that of commits, over all producers: it depends on the store's revision and on no
      clock.  An item whose `put` had returned before another `put` began comes before it.
    * Each item goes to one consumer at most, and to exactly one unless that consumer, or its connection
      to the store, dies during the handover.
    * The cost of a get does not depend on the length of the queue.
    * `timeout=` never loses an item, and a cancelled get puts back what it took, at the front.
What it does not
    * An item is deleted from the store when `get` returns it: a consumer that dies with it has lost it.
    * A `get` that raises `Indeterminate` may have removed an item that no consumer got.  Where that
      must not happen, use a `WorkQueue`: there an item stays until it is acknowledged.
    * A `put` that raises `Indeterminate` may have happened; to put again may put twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from quoracy.client.context import Context
from quoracy.client.queue_head import QueueConsumer

__all__ = ["Queue"]

T = TypeVar("T")


class Queue(QueueConsumer[T], Generic[T]):
    """A queue by name; one object may be shared.

    type: of the items: bytes, str, or anything msgspec can write as JSON.
    """

    def __init__(self, context: Context, name: str, type: type[T]) -> None:
        super().__init__(context, name, type, kind="queue")

    async def put(self, item: T) -> int:
        """Put an item at the end; returns the revision of the store at which it is there.

        Raises `Unavailable`: it was not put.  `Indeterminate`: it may have been.
        """
        return await self._put((item,))

    async def put_many(self, items: Sequence[T]) -> int:
        """Put items at the end, all or none, with nothing between them; at most 127.

        Without items it does not ask the store, and returns 0.
        """
        return await self._put(items)
