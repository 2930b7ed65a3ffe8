"""Election: one candidate leads, the others stand by; all clients can observe the leader.

    async with quoracy.connect("memory:") as q:
        election = q.election("scheduler")
        async with election.lead("node-7") as term:        # waits to be elected; resigns at the end
            await run_scheduler(fence=term.token)

What it promises
    * At most one leads at a time, as far as the store is concerned; a leader whose session is lost is
      notified (and the body of its block cancelled) before another can be elected.
    * A term's token is larger than that of every term before it.
    * `observe` shows every leader, in order, however short its term.
    * It is etcd's election: candidates of `etcdctl elect` and etcd's Election service take part in it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from quoracy.client.contender import Contender, Contest, contenders
from quoracy.client.context import Context
from quoracy.client.held import Held, Holding
from quoracy.client.session import Session
from quoracy.errors import LeadershipLost
from quoracy.store import contention
from quoracy.store.contention import Owner, Place
from quoracy.store.model import Put, Txn

__all__ = ["Election", "Leader", "Term"]


@dataclass(frozen=True, slots=True)
class Leader:
    """A leader: the value it proclaims, the token of its term, and the revision of this state."""

    value: str
    token: int
    lease: int
    revision: int


class Term(Held):
    """A term of office.  `value` is what other clients see; `proclaim` changes it."""

    loss_type = LeadershipLost

    def __init__(self, context: Context, session: Session, place: Place, *, name: str) -> None:
        super().__init__(
            context,
            session,
            name=name,
            key=place.key,
            token=place.token,
            what=f"the leadership of {name}",
            on_deleted=context.free_key,
        )
        self.value = place.value.decode("utf-8", "backslashreplace")

    async def proclaim(self, value: str) -> None:
        """Change the value that other clients see.  Raises `LeadershipLost` if the term is over."""
        self.check()
        put = Put(self.key, value.encode(), self._session.id)
        result = await self._context.write(Txn((self.guard(),), (put,)))
        if not result.succeeded:
            self.key_not_found()
            self.check()
        self.value = value

    async def resign(self) -> None:
        """Resign: the next candidate is elected.  The same as `release`."""
        await self.release()


class Election:
    """An election by name; one object may be shared, each term is its own `Term`."""

    def __init__(self, context: Context, name: str, *, cancel_on_loss: bool = True) -> None:
        self.name = name
        self._context, self._key = context, context.key(name)
        self._cancel_on_loss = cancel_on_loss

    async def campaign(self, value: str | None = None, *, timeout: float | None = None) -> Term:
        """Become a candidate and wait to be elected.

        value: what other clients see; by default the connection's identity.  Raises `TimedOut`.
        """
        said = self._context.identity if value is None else value
        what = f"the leadership of {self.name}"
        contest = Contest(self._context, self._key, said.encode(), self._term, what=what)
        return await contest.win(timeout=timeout)

    def _term(self, session: Session, place: Place) -> Term:
        return Term(self._context, session, place, name=self.name)

    def lead(self, value: str | None = None, *, timeout: float | None = None) -> Holding[Term]:
        """A block as the leader: waits to be elected, and resigns at its end.

        A block whose term is lost raises `LeadershipLost`; in coroutines its body is cancelled first.
        A thread cannot be cancelled: look at the term's `lost`, or call its `check()`.
        """
        return Holding(
            lambda: self.campaign(value, timeout=timeout), cancel_on_loss=self._cancel_on_loss
        )

    async def leader(self) -> Leader | None:
        """The leader, if there is one."""
        self._context.check()
        found = await contention.owner(self._context.store, self._key)
        return None if found is None else _leader(found)

    async def observe(self) -> AsyncGenerator[Leader, None]:
        """The leader, then every later one, and every value a leader proclaims, in order, without end.

        Close it when you leave the loop early, as `contextlib.aclosing` and `closing` do.
        """
        self._context.check()
        async with aclosing(contention.observe(self._context.store, self._key)) as owners:
            async for owner in owners:
                yield _leader(owner)

    async def candidates(self) -> tuple[Contender, ...]:
        """The leader and the candidates that stand by, in order."""
        return await contenders(self._context, self._key)

    def __repr__(self) -> str:
        return f"<Election {self.name}>"


def _leader(owner: Owner) -> Leader:
    kv = owner.kv
    said = kv.value.decode("utf-8", "backslashreplace")
    return Leader(said, kv.create_revision, kv.lease, owner.revision)
