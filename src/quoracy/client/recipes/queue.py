"""Queue: first in, first out, for many producers and consumers in many processes.

    async with quoracy.connect("memory:") as q:
        jobs = q.queue("jobs", str)
        await jobs.put("paint the fence")
        job = await jobs.get(timeout=5)

What it promises
    * The order is that of commits, over all producers: the store's revision decides, no clock does.
      An item whose `put` had returned before another `put` began comes before it.
    * Each item is given to one consumer at most, and to one exactly unless that consumer, or the
      connection to the store, dies while it is being handed over.
    * What a get costs does not depend on how long the queue is.
    * `timeout=` never loses an item, and a cancelled get gives back what it took, to the front.
What it does not
    * An item is gone from the store when `get` returns it: a consumer that dies with it has lost it.
    * A `get` that raises `Indeterminate` may have removed an item that nobody received.  Where that
      must not be, use a `WorkQueue`: there an item stays until it is acknowledged.
    * A `put` that raises `Indeterminate` may have happened; to put again may put twice.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Generic, TypeVar

from quoracy.client.codec import codec_of
from quoracy.client.context import Ground
from quoracy.client.queue_head import Outlet
from quoracy.client.queue_items import Backlog

__all__ = ["Queue"]

T = TypeVar("T")


class Queue(Generic[T]):
    """A queue by name; one object may be shared.

    type: of the items: bytes, str, or anything msgspec can write as JSON.
    """

    def __init__(self, ground: Ground, name: str, type: type[T]) -> None:
        self.name = name
        key = ground.key(name)
        self._ground, self._codec = ground, codec_of(type)
        self._backlog = Backlog(ground, key)
        self._outlet = Outlet(
            ground,
            self._backlog,
            self._codec,
            key=key,
            name=name,
            what=f"an item of the queue {name}",
            look=self._backlog.look,
        )

    async def put(self, item: T) -> int:
        """Put an item at the end; returns the store's revision at which it is there.

        Raises `Unavailable`: it was not put.  `Indeterminate`: it may have been.
        """
        return await self.put_many((item,))

    async def put_many(self, items: Sequence[T]) -> int:
        """Put items at the end, all or none, with nothing between them; at most 127.

        With none it asks nobody, and returns 0.
        """
        self._ground.check()
        if not items:
            return 0
        return await self._backlog.put([self._codec.encode(item) for item in items])

    async def get(self, *, timeout: float | None = None) -> T:
        """Remove the first item and return it; wait for one if there is none.

        Raises `TimedOut` (nothing was removed; with `timeout=0`, at once), `Unavailable` (nothing was
        removed), `Indeterminate`: an item may have been removed that nobody received.  Raises
        `ValueUnreadable` for an item that is not of the queue's type; it is kept aside under
        `name/unreadable/`.
        """
        return await self._outlet.get(timeout)

    async def try_get(self) -> T | None:
        """Remove the first item and return it; None if there is none.  Raises what `get` raises."""
        return await self._outlet.try_get()

    async def peek(self) -> T | None:
        """The first item, which stays; None if there is none."""
        return await self._outlet.peek()

    async def size(self) -> int:
        """How many items there are now."""
        self._ground.check()
        return await self._backlog.count()

    def __aiter__(self) -> AsyncIterator[T]:
        """Iterate over the queue: get after get, for ever."""
        return self

    async def __anext__(self) -> T:
        return await self.get()

    def __repr__(self) -> str:
        return f"<Queue {self.name} of {self._codec.type_name}>"
