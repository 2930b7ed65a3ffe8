"""Lock: one holder at a time, first come, first served, with a fencing token for each holder.

    async with quoracy.connect("memory:") as q:
        async with q.lock("reports/nightly") as held:
            await write_report(fence=held.token)

What it promises
    * A holder's token is larger than that of every holder before it.
    * While `held.is_held` is true the store has not given the lock to another client.  A process may
      still be stopped between that check and the action: the token is for that.
    * Waiters are served in the order in which they joined, in whichever process they are; each watches
      only the one before it, so that a release wakes one.
    * It is etcd's lock: `etcdctl lock` and etcd's Lock service wait in the same queue.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from quoracy.blocks import owner_here
from quoracy.client.contender import Contender, Contest, contenders
from quoracy.client.context import Context
from quoracy.client.held import Enterable, Held, Holding
from quoracy.client.session import Session
from quoracy.store.contention import Place

__all__ = ["Lock"]


class Lock(Enterable[Held]):
    """A lock by name; one object may be shared, each acquisition has its own `Held`.

    cancel_on_loss: when the lock is lost inside the block, cancel the body and raise `LockLost`; in
        coroutines only.  False: only `held.lost` is set, and the block raises at its end.
    reentrant: its holder, which is a task or with `quoracy.sync` a thread, may enter it again.
    hold_max: it counts as lost after this many seconds.
    """

    def __init__(
        self,
        context: Context,
        name: str,
        *,
        cancel_on_loss: bool = True,
        reentrant: bool = False,
        hold_max: float | None = None,
    ) -> None:
        super().__init__()
        self.name = name
        self._key = context.key(name)
        self._context = context
        self._what = f"the lock {name}"
        self._cancel_on_loss, self._reentrant, self._hold_max = cancel_on_loss, reentrant, hold_max
        value = context.identity.encode()
        self._contest = Contest(context, self._key, value, self._held, what=self._what)
        # How a block acquires it.  Only a reentrant lock may be held already.
        self._entering: Callable[[], Awaitable[Held]] = self.acquire if reentrant else self._contest.win

    async def acquire(self, *, timeout: float | None = None) -> Held:
        """Wait for the lock.  The caller releases it; the block `lock.hold()` does both.

        Raises `TimedOut`; `Unavailable` or `Indeterminate` if the store did not answer, and then it is
        not held.
        """
        again = self._again()
        if again is not None:
            return again
        return self._entered(await self._contest.win(timeout=timeout))

    async def try_acquire(self) -> Held | None:
        """Acquire the lock if no client holds it or waits for it; None otherwise, at once.

        Raises `TimedOut` if there is no session at the moment.
        """
        again = self._again()
        if again is not None:
            return again
        held = await self._contest.try_win()
        return None if held is None else self._entered(held)

    def hold(self, *, timeout: float | None = None) -> Holding[Held]:
        """A block in which the lock is held, for one use: `lock.hold(timeout=5)`."""
        return Holding(lambda: self.acquire(timeout=timeout), cancel_on_loss=self._cancel_on_loss)

    async def contenders(self) -> tuple[Contender, ...]:
        """The holder and the waiters of the lock, in order."""
        return await contenders(self._context, self._key)

    def _holding(self) -> Holding[Held]:
        return Holding(self._entering, cancel_on_loss=self._cancel_on_loss)

    def _again(self) -> Held | None:
        self._context.check()
        if not self._reentrant:
            return None
        held = self._context.reentrant.get((self._key, owner_here()))
        if not isinstance(held, _Reentrant) or not held.is_held:
            return None
        held.depth += 1
        return held

    def _held(self, session: Session, place: Place) -> Held:
        """The acquisition of a place at the front of the queue."""
        context = self._context
        kind = _Reentrant if self._reentrant else Held
        return kind(
            context,
            session,
            name=self.name,
            key=place.key,
            token=place.token,
            what=self._what,
            hold_max_s=self._hold_max,
            on_deleted=context.free_key,
        )

    def _entered(self, held: Held) -> Held:
        if isinstance(held, _Reentrant):
            held.entered_as = (self._key, owner_here())
            self._context.reentrant[held.entered_as] = held
        return held

    def __repr__(self) -> str:
        return f"<Lock {self.name}>"


class _Reentrant(Held):
    """An acquisition that its owner may repeat; as many releases end it."""

    depth = 1
    entered_as: tuple[bytes, object] = (b"", None)

    async def _release(self, *, quietly: bool) -> None:
        if self.depth > 0:
            self.depth -= 1
        if self.depth == 0:
            entered = self._context.reentrant
            if entered.get(self.entered_as) is self:
                del entered[self.entered_as]
            await super()._release(quietly=quietly)
