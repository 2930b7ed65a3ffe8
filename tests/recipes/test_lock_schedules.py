"""Locks and elections under random schedules, on a clock the schedule owns, against a naive model.

Several connections want, give up, release, lose their session, are stopped or cut off, in any order.
At every moment at most one affirms that it holds; whoever waits is served in the order of joining; in
the end nothing is left in the store.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

import quoracy
from quoracy.client.held import Held
from quoracy.clock import ManualClock
from quoracy.engines.opening import open_embedded
from quoracy.store.model import KeyRange
from tests.support.asking import turns
from tests.support.profiles import examples
from tests.support.unreliable_store import Unreliable

CLIENTS = 3
NAME = "it"

Action = tuple[str, int]
actions = st.lists(
    st.tuples(
        st.sampled_from(["want", "try", "give up", "release", "revoke", "cut", "heal", "tick", "stop"]),
        st.integers(0, CLIENTS - 1),
    ),
    max_size=40,
)


@dataclass
class Client:
    """One connection, and what it has asked for."""

    store: Unreliable
    q: quoracy.Connection
    kind: str
    wanting: list[asyncio.Task[Held]] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)

    def want(self) -> None:
        acquire = (
            self.q.lock(NAME).acquire() if self.kind == "lock" else self.q.election(NAME).campaign("me")
        )
        self.wanting.append(asyncio.ensure_future(acquire))

    def collect(self) -> list[Held]:
        """What has been got since the last time."""
        done = [task for task in self.wanting if task.done()]
        self.wanting = [task for task in self.wanting if not task.done()]
        got = [task.result() for task in done if not task.cancelled() and task.exception() is None]
        self.held += got
        return got


class Run:
    """One schedule."""

    def __init__(self, clients: list[Client], clock: ManualClock) -> None:
        self._clients, self._clock = clients, clock
        self.tokens: list[int] = []

    async def act(self, what: str, who: int) -> None:
        client = self._clients[who]
        match what:
            case "want":
                client.want()
            case "try":
                trying = asyncio.create_task(client.q.lock(NAME).try_acquire())
                await turns(30)
                if trying.done() and trying.exception() is None and (held := trying.result()):
                    client.held.append(held)
                    self.note(held)
                elif not trying.done():  # it waits for a session
                    trying.cancel()
                    await asyncio.wait([trying])
            case "give up":
                for task in client.wanting:
                    task.cancel()
            case "release":
                for held in client.held:
                    await held.leave()
                client.held.clear()
            case "revoke":
                session = client.q.session_renewal.current
                if session is not None:
                    # Who is robbed by force learns of it afterwards; here, at once.
                    session.lease_not_found()
                    await client.store._store.revoke(session.id)
            case "cut":
                client.store.refuses = True
            case "heal":
                client.store.refuses = False
            case "tick":
                await self._clock.advance(1.0 + who)
            case "stop":
                self._clock.jump(4.0 * who)
                self.look()
                await self._clock.advance(0.0)
        await turns(40)
        self.look()

    def note(self, held: Held) -> None:
        assert not self.tokens or held.token > self.tokens[-1], "served out of order"
        self.tokens.append(held.token)

    def look(self) -> None:
        fresh = [held for client in self._clients for held in client.collect()]
        for held in sorted(fresh, key=lambda held: held.token):
            self.note(held)
        sure = [held for client in self._clients for held in client.held if held.is_held]
        assert len(sure) <= 1, f"{len(sure)} hold it: {sure}"


async def play(kind: str, schedule: list[Action]) -> None:
    clock = ManualClock()
    async with open_embedded("memory:", clock=clock) as store:
        async with AsyncExitStack() as stack:
            clients = []
            for number in range(CLIENTS):
                unreliable = Unreliable(store)
                q = await stack.enter_async_context(
                    quoracy.connect(
                        unreliable,  # type: ignore[arg-type]
                        clock=clock,
                        session_ttl=6.0,
                        identity=str(number),
                    )
                )
                clients.append(Client(unreliable, q, kind))
            run = Run(clients, clock)
            for what, who in schedule:
                await run.act(what, who)
            for client in clients:
                client.store.refuses = False
                for task in client.wanting:
                    task.cancel()
                for held in client.held:
                    await held.leave()
            for _ in range(20):
                await clock.advance(1.0)
            run.look()
            for client in clients:
                for held in client.held:
                    await held.leave()
            await turns(40)
            assert (await store.range(KeyRange.everything())).kvs == ()
        assert await store.leases() == ()


@settings(max_examples=examples(60), deadline=None)
@given(kind=st.sampled_from(["lock", "election"]), schedule=actions)
def test_at_most_one_holds_and_nothing_is_left(kind: str, schedule: list[Action]) -> None:
    asyncio.run(play(kind, schedule))
