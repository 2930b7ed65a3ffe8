"""Barrier: clients wait while it is raised, and continue when it is lowered.

    async with quoracy.connect("memory:") as q:
        barrier = q.barrier("deploy")
        await barrier.raise_()               # kazoo: create(); callers of `wait` wait
        await barrier.lower()                # kazoo: remove(); all callers of `wait` continue
        await barrier.wait(timeout=30)       # returns at once: it is not raised

What it promises
    * It is one key, and raised while the key exists.  `wait` returns only if it was down at some moment
      after the call; between its return and the next line it may be raised again.
    * A waiter at the moment when it is lowered continues, even if it is raised again at once.
    * Raised by a process that dies, it stays raised; with `while_alive=True` it falls with the session.
"""

from __future__ import annotations

from quoracy.client.compare_and_swap import was_deleted
from quoracy.client.context import Context
from quoracy.client.key_follower import wait_for
from quoracy.errors import LeaseNotFound
from quoracy.store.model import Compare, Delete, Put, Txn

__all__ = ["Barrier"]


class Barrier:
    """A barrier by name; one object may be shared."""

    def __init__(self, context: Context, name: str) -> None:
        self.name = name
        self._context, self._key = context, context.key(name)

    async def raise_(self, *, while_alive: bool = False) -> bool:
        """Raise it.  False: it was raised already, and stays as it was.

        while_alive: it falls when the session of this connection ends.  Raises `SessionLost` if that
            has just happened.
        """
        context = self._context
        if not while_alive:
            return await self._put(0)
        session = await context.session()
        try:
            return await self._put(session.id)
        except LeaseNotFound as error:
            session.lease_not_found()
            raise session.loss(f"the barrier {self.name} was not raised") from error

    async def lower(self) -> bool:
        """Lower it: all waiters continue.  False: it was not raised."""
        return was_deleted(await self._context.write(Txn((), (Delete(self._key),))))

    async def is_raised(self) -> bool:
        """Whether it is raised now."""
        return await self._context.read_key(self._key) is not None

    async def wait(self, *, timeout: float | None = None) -> None:
        """Wait until it is not raised.  Raises `TimedOut`."""
        what = f"the barrier {self.name} to be lowered"
        await wait_for(
            self._context, self._key, lambda kvs: not kvs or None, timeout=timeout, what=what
        )

    async def _put(self, lease: int) -> bool:
        put = Put(self._key, self._context.identity.encode(), lease)
        return (await self._context.write(Txn((Compare.missing(self._key),), (put,)))).succeeded

    def __repr__(self) -> str:
        return f"<Barrier {self.name}>"
