"""A voter on a storage."""

from __future__ import annotations

import random

import pytest

from quoracy.errors import Unavailable
from quoracy.membership.elections import MemoryVote, Persisted, SaveVote, Terms
from quoracy.membership.elections.messages import VoteReply, VoteRequest, terms_codec
from quoracy.membership.machine import SendPacket
from tests.membership.elections.table import Table
from tests.membership.elections.test_terms import NAMES, VOTERS


class _Disk(MemoryVote):
    """Fails when it is told to."""

    is_full = False

    def save(self, vote: SaveVote) -> None:
        if self.is_full:
            raise OSError("no space left on device")
        super().save(vote)


def a_voter(storage: MemoryVote) -> Persisted:
    voter = Persisted("a", NAMES, storage=storage, rng=random.Random(1))
    voter.start(0.0)
    return voter


def ask(voter: Persisted, sender: str, term: int, now: float) -> bool:
    effects = voter.receive(terms_codec.encode(VoteRequest(VOTERS, term)), sender, now)
    (packet,) = (effect for effect in effects if isinstance(effect, SendPacket))
    reply = terms_codec.decode(packet.data)
    assert isinstance(reply, VoteReply)
    return reply.granted


def test_a_vote_is_there_after_a_restart() -> None:
    storage = _Disk()
    assert ask(a_voter(storage), "b", 3, 1.5)
    assert storage.load() == SaveVote(3, "b")
    again = a_voter(storage)
    assert again.term == 3
    assert not ask(again, "c", 3, 1.5)


def test_nobody_hears_of_a_vote_that_could_not_be_saved() -> None:
    storage = _Disk()
    voter = a_voter(storage)
    storage.is_full = True
    with pytest.raises(OSError, match="no space"):
        ask(voter, "b", 3, 1.5)
    storage.is_full = False
    with pytest.raises(Unavailable, match="no space"):
        voter.tick(2.0)
    with pytest.raises(Unavailable, match="could not be saved"):
        ask(voter, "c", 3, 1.5)
    assert ask(a_voter(storage), "c", 3, 1.5), "one that nobody heard of may be given to another"


def test_it_is_the_same_election() -> None:
    table = Table(
        [Persisted(name, NAMES, storage=MemoryVote(), rng=random.Random(name)) for name in NAMES]
    )
    bare = Table([Terms(name, NAMES, rng=random.Random(name)) for name in NAMES])
    for each in (table, bare):
        each.start()
        each.run(8.0)
    assert table.leaders == bare.leaders
    assert table.terms == bare.terms
    assert table.sent == bare.sent
    (leader,) = set(table.leaders.values())
    assert leader is not None
    winner = table.peers[leader]
    assert isinstance(winner, Persisted)
    assert winner.is_leader
    assert winner.confirmed_until > 8.0
    assert table.events == [
        (name, event) for name, event in bare.events if not isinstance(event, SaveVote)
    ]


def test_unreachable_and_suspected_peers_reach_the_voter() -> None:
    voter = a_voter(MemoryVote())
    assert voter.unreachable("b", 0.5) == []
    assert voter.suspect("b", 0.5) == []
    assert voter.receive_stream(terms_codec.encode(VoteRequest(VOTERS, 3)), "b", 1.5)
