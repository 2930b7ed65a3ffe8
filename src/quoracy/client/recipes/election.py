"""Election: one leads, the others stand by; everyone can see who.

    async with quoracy.connect("memory:") as q:
        election = q.election("scheduler")
        async with election.lead("node-7") as term:        # waits to be elected; resigns at the end
            await run_scheduler(fence=term.token)

What it promises
    * At most one leads at a time, as far as the store is concerned; a leader whose session is lost is
      told (and the body of its block cancelled) before another can be elected.
    * A term's token is larger than that of every term before it.
    * `observe` shows every leader, in order, however short its term.
    * It is etcd's election: `etcdctl elect` and etcd's Election service stand in the same one.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from quoracy.client.contender import Contender, Contest, contenders
from quoracy.client.context import Ground
from quoracy.client.held import Held, Holding
from quoracy.client.session import Session
from quoracy.errors import LeadershipLost
from quoracy.store import contention
from quoracy.store.contention import Owner, Place
from quoracy.store.model import Put, Txn

__all__ = ["Election", "Leader", "Term"]


@dataclass(frozen=True, slots=True)
class Leader:
    """Who leads: what it says of itself, the token of its term, and the revision at which that was
    so.
    """

    value: str
    token: int
    lease: int
    revision: int


class Term(Held):
    """A term of office.  `value` is what others see; `proclaim` changes it."""

    loss_type = LeadershipLost

    def __init__(self, ground: Ground, session: Session, place: Place, *, name: str) -> None:
        super().__init__(
            ground,
            session,
            name=name,
            key=place.key,
            token=place.token,
            what=f"the leadership of {name}",
            on_gone=ground.free_key,
        )
        self.value = place.value.decode("utf-8", "backslashreplace")

    async def proclaim(self, value: str) -> None:
        """Change what others see of the leader.  Raises `LeadershipLost` if it is not us any more."""
        self.check()
        put = Put(self.key, value.encode(), self._session.id)
        result = await self._ground.write(Txn((self.guard(),), (put,)))
        if not result.succeeded:
            self.found_gone()
            self.check()
        self.value = value

    async def resign(self) -> None:
        """Step down: the next in line is elected.  The same as `release`."""
        await self.release()


class Election:
    """An election by name; one object may be shared, each term is its own `Term`."""

    def __init__(self, ground: Ground, name: str, *, cancel_on_loss: bool = True) -> None:
        self.name = name
        self._ground, self._key = ground, ground.key(name)
        self._cancel_on_loss = cancel_on_loss

    async def campaign(self, value: str | None = None, *, timeout: float | None = None) -> Term:
        """Stand for election and wait to be elected.

        value: what others see; by default the connection's identity.  Raises `TimedOut`.
        """
        said = self._ground.identity if value is None else value
        what = f"the leadership of {self.name}"
        contest = Contest(self._ground, self._key, said.encode(), self._term, what=what)
        return await contest.win(timeout=timeout)

    def _term(self, session: Session, place: Place) -> Term:
        return Term(self._ground, session, place, name=self.name)

    def lead(self, value: str | None = None, *, timeout: float | None = None) -> Holding[Term]:
        """A block as the leader: waits to be elected, and resigns at its end.

        A block whose term is lost raises `LeadershipLost`; in coroutines its body is cancelled first.
        A thread cannot be cancelled: look at the term's `lost`, or call its `check()`.
        """
        return Holding(
            lambda: self.campaign(value, timeout=timeout), cancel_on_loss=self._cancel_on_loss
        )

    async def leader(self) -> Leader | None:
        """Who leads now, if anybody."""
        self._ground.check()
        found = await contention.owner(self._ground.store, self._key)
        return None if found is None else _leader(found)

    async def observe(self) -> AsyncGenerator[Leader, None]:
        """The leader, then every later one, and every value a leader proclaims; for ever, in order.

        Close it when you leave the loop early, as `contextlib.aclosing` and `closing` do.
        """
        self._ground.check()
        async with aclosing(contention.observe(self._ground.store, self._key)) as owners:
            async for owner in owners:
                yield _leader(owner)

    async def candidates(self) -> tuple[Contender, ...]:
        """Who leads and who stands by, in order."""
        return await contenders(self._ground, self._key)

    def __repr__(self) -> str:
        return f"<Election {self.name}>"


def _leader(owner: Owner) -> Leader:
    kv = owner.kv
    said = kv.value.decode("utf-8", "backslashreplace")
    return Leader(said, kv.create_revision, kv.lease, owner.revision)
