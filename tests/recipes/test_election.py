"""Election: what it promises, on every kind of store."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

import quoracy
from tests.support.asking import eventually
from tests.support.cancelling import cancelled_everywhere
from tests.support.places import Place


async def test_leader_is_seen_and_resigns_at_the_end(place: Place, q: quoracy.Connection) -> None:
    election = q.election("e")
    assert await election.leader() is None
    async with election.lead("node-7") as term:
        leader = await election.leader()
        assert leader is not None
        assert (leader.value, leader.token) == ("node-7", term.token)
        await term.proclaim("node-7 busy")
        leader = await election.leader()
        assert leader is not None
        assert (leader.value, term.value) == ("node-7 busy", "node-7 busy")
    assert await election.leader() is None


async def test_next_in_line_is_elected_with_a_larger_token(place: Place) -> None:
    async with place.connect(identity="ann") as ann, place.connect(identity="bob") as bob:
        first = await ann.election("e").campaign()
        waiting = asyncio.create_task(bob.election("e").campaign())

        async def both() -> bool:
            return [each.identity for each in await ann.election("e").candidates()] == ["ann", "bob"]

        await eventually(both)
        await first.resign()
        second = await waiting
        assert second.token > first.token
        assert second.value == "bob"


async def test_lost_term_cancels_the_body(place: Place, q: quoracy.Connection) -> None:
    with pytest.raises(quoracy.LeadershipLost):
        async with q.election("e").lead("me"):
            (await q.session()).lease_not_found()
            await asyncio.get_running_loop().create_future()


async def test_proclaiming_after_the_loss_raises(place: Place, q: quoracy.Connection) -> None:
    term = await q.election("e").campaign("me")
    await place.store.delete(term.key)
    with pytest.raises(quoracy.LeadershipLost):
        await term.proclaim("still me")
    assert term.lost.is_set()


async def test_observer_sees_every_leader_however_short_its_term(
    place: Place, q: quoracy.Connection
) -> None:
    election = q.election("e")
    async with aclosing(election.observe()) as leaders:
        async with election.lead("first"):
            assert (await anext(leaders)).value == "first"
        # Nobody looks while these come and go.
        for number in range(20):
            async with election.lead(f"short {number}"):
                pass
        async with election.lead("last"):
            seen = [(await anext(leaders)) for _ in range(21)]
    assert [each.value for each in seen] == [*(f"short {number}" for number in range(20)), "last"]
    tokens = [each.token for each in seen]
    assert tokens == sorted(tokens)


async def test_observer_goes_on_after_compaction(place: Place, q: quoracy.Connection) -> None:
    election = q.election("e")
    async with aclosing(election.observe()) as leaders:
        async with election.lead("first") as term:
            assert (await anext(leaders)).value == "first"
            await term.proclaim("again")
            status = await place.store.status()
            await place.store.compact(status.revision)
            assert (await anext(leaders)).value == "again"


async def test_cancelled_at_every_await_no_candidate_is_left(place: Place) -> None:
    async with place.connect() as one, place.connect() as other:

        async def candidates(count: int) -> bool:
            return len(await one.election("e").candidates()) == count

        async def stand() -> None:
            async with other.election("e").lead("other") as term:
                await term.proclaim("still other")

        async for _ in cancelled_everywhere(stand):
            await eventually(lambda: candidates(0))
        async with one.election("e").lead("one"):

            async def wait() -> None:
                with pytest.raises(quoracy.TimedOut):
                    await other.election("e").campaign("other", timeout=0.02)

            async for _ in cancelled_everywhere(wait):
                await eventually(lambda: candidates(1))
