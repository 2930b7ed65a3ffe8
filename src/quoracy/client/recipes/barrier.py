"""Barrier: nobody passes while it is raised; lowered, it lets everyone pass.

    async with quoracy.connect("memory:") as q:
        barrier = q.barrier("deploy")
        await barrier.raise_()               # kazoo: create(); whoever comes to `wait` waits
        await barrier.lower()                # kazoo: remove(); everyone in `wait` goes on
        await barrier.wait(timeout=30)       # passes at once: it is not raised

What it promises
    * It is one key: raised while the key is there.  `wait` returns only if it was down at some moment
      after the call; between its return and the next line it may be raised again.
    * Whoever waits when it is lowered passes, also if it is raised again at once.
    * Raised by a process that dies, it stays raised; with `while_alive=True` it falls with the session.
"""

from __future__ import annotations

from quoracy.client.context import Ground
from quoracy.client.key_follower import KeyValues, wait_for
from quoracy.errors import LeaseNotFound
from quoracy.store.model import Compare, Delete, DeleteResult, Put, Txn

__all__ = ["Barrier"]


class Barrier:
    """A barrier by name; one object may be shared."""

    def __init__(self, ground: Ground, name: str) -> None:
        self.name = name
        self._ground, self._key = ground, ground.key(name)

    async def raise_(self, *, while_alive: bool = False) -> bool:
        """Raise it.  False: it was raised already, and stays as whoever raised it wanted it.

        while_alive: it falls when the session of this connection ends.  Raises `SessionLost` if that
            has just happened.
        """
        ground = self._ground
        if not while_alive:
            return await self._put(0)
        session = await ground.session()
        try:
            return await self._put(session.id)
        except LeaseNotFound as error:
            session.found_gone()
            raise session.loss(f"the barrier {self.name} was not raised") from error

    async def lower(self) -> bool:
        """Lower it: everyone who waits goes on.  False: it was not raised."""
        result = await self._ground.write(Txn((), (Delete(self._key),)))
        deleted = result.results[0]
        assert isinstance(deleted, DeleteResult)
        return deleted.deleted > 0

    async def is_raised(self) -> bool:
        """Whether it is raised now."""
        self._ground.check()
        return bool((await self._ground.store.range(self._key, count_only=True)).count)

    async def wait(self, *, timeout: float | None = None) -> None:
        """Wait until it is not raised.  Raises `TimedOut`."""
        what = f"the barrier {self.name} to be lowered"
        await wait_for(self._ground, self._key, _is_down, timeout=timeout, what=what)

    async def _put(self, lease: int) -> bool:
        put = Put(self._key, self._ground.identity.encode(), lease)
        return (await self._ground.write(Txn((Compare.missing(self._key),), (put,)))).succeeded

    def __repr__(self) -> str:
        return f"<Barrier {self.name}>"


def _is_down(kvs: KeyValues) -> bool | None:
    return None if kvs else True
