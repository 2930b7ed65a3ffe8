"""Elections by majority, message by message."""

from __future__ import annotations

import math
import random

import pytest

from quoracy.errors import DataUnreadable, InvalidRequest, ProtocolError
from quoracy.membership.elections import (
    LeaderElected,
    LeaderLost,
    LossReason,
    SaveVote,
    Terms,
    TermsSettings,
)
from quoracy.membership.elections.messages import (
    Heartbeat,
    HeartbeatReply,
    PreVote,
    PreVoteReply,
    TermsMessage,
    VoteReply,
    VoteRequest,
    terms_codec,
)
from quoracy.membership.machine import Effect, SendPacket, Tell
from tests.membership.elections.table import Table

NAMES = ["a", "b", "c", "d", "e"]
VOTERS = 497_821_491  # the checksum of these five; peers that compute it otherwise do not fit
SETTINGS = TermsSettings(election_timeout_min_s=1.0, election_timeout_max_s=2.0, clock_drift_max=0.0)


def a_voter(name: str = "a", saved: SaveVote | None = None) -> Terms:
    """Started at 0, and free to vote from 1 on."""
    terms = Terms(name, NAMES, rng=random.Random(name), settings=SETTINGS, saved=saved)
    assert terms.start(0.0) == []
    return terms


def say(terms: Terms, sender: str, message: TermsMessage, now: float) -> list[Effect]:
    return terms.receive(terms_codec.encode(message), sender, now)


def said(effects: list[Effect]) -> list[tuple[str, TermsMessage]]:
    sent = [effect for effect in effects if isinstance(effect, SendPacket)]
    return [(packet.to, terms_codec.decode(packet.data)) for packet in sent]


def a_candidate(name: str = "a") -> tuple[Terms, float]:
    """In term 1, with its own vote."""
    terms = a_voter(name)
    now = terms.next_due
    terms.tick(now)
    say(terms, "b", PreVoteReply(VOTERS, 1, granted=True), now)
    say(terms, "c", PreVoteReply(VOTERS, 1, granted=True), now)
    assert (terms.term, terms.leader) == (1, None)
    return terms, now


def a_leader(name: str = "a") -> tuple[Terms, float]:
    terms, now = a_candidate(name)
    for sender in ("b", "c"):
        say(terms, sender, VoteReply(VOTERS, 1, granted=True), now)
    assert terms.is_leader
    return terms, now


def test_peers_elect_one_leader_in_one_term() -> None:
    table = Table([Terms(name, NAMES, rng=random.Random(name)) for name in NAMES])
    table.start()
    table.run(10.0)
    (leader,) = set(table.leaders.values())
    assert leader in NAMES
    assert table.terms == {1}
    assert [name for name, peer in table.peers.items() if peer.is_leader] == [leader]


def test_a_vote_is_saved_before_anyone_hears_of_it() -> None:
    voter = a_voter()
    first, *rest = say(voter, "b", VoteRequest(VOTERS, 3), 1.5)
    assert first == Tell(SaveVote(3, "b"))
    assert said(rest) == [("b", VoteReply(VOTERS, 3, granted=True))]


def test_a_candidate_saves_its_own_vote_before_it_asks_for_others() -> None:
    voter = a_voter()
    now = voter.next_due
    asked = voter.tick(now)
    assert [message for _, message in said(asked)] == [PreVote(VOTERS, 1)] * 4
    assert voter.term == 0, "asking whether others would vote begins no term"
    say(voter, "b", PreVoteReply(VOTERS, 1, granted=True), now)
    first, *rest = say(voter, "c", PreVoteReply(VOTERS, 1, granted=True), now)
    assert first == Tell(SaveVote(1, "a"))
    assert said(rest) == [(name, VoteRequest(VOTERS, 1)) for name in "bcde"]


def test_a_new_term_is_saved_even_without_a_vote() -> None:
    voter = a_voter()
    first, *_ = say(voter, "b", Heartbeat(VOTERS, 4, 0.0), 0.5)
    assert first == Tell(SaveVote(4, None))
    second = say(voter, "b", Heartbeat(VOTERS, 4, 0.1), 0.6)
    assert not any(isinstance(effect, Tell) for effect in second)


def test_there_is_one_vote_in_a_term_and_it_may_be_repeated() -> None:
    voter = a_voter()
    say(voter, "b", VoteRequest(VOTERS, 3), 1.5)
    assert said(say(voter, "c", VoteRequest(VOTERS, 3), 1.5)) == [
        ("c", VoteReply(VOTERS, 3, granted=False))
    ]
    assert said(say(voter, "b", VoteRequest(VOTERS, 3), 1.5)) == [
        ("b", VoteReply(VOTERS, 3, granted=True))
    ]
    assert said(say(voter, "c", VoteRequest(VOTERS, 4), 1.5)) == [
        ("c", VoteReply(VOTERS, 4, granted=True))
    ]


def test_a_vote_holds_after_a_restart_with_what_was_saved() -> None:
    voter = a_voter(saved=SaveVote(3, "b"))
    assert voter.term == 3
    refused = say(voter, "c", VoteRequest(VOTERS, 3), 1.5)
    assert said(refused) == [("c", VoteReply(VOTERS, 3, granted=False))]
    assert said(say(voter, "b", VoteRequest(VOTERS, 3), 1.5)) == [
        ("b", VoteReply(VOTERS, 3, granted=True))
    ]


def test_a_restart_without_what_was_saved_votes_again() -> None:
    """Why saving matters: this is the second vote of one peer in one term."""
    voter = a_voter()
    assert said(say(voter, "b", VoteRequest(VOTERS, 3), 1.5))[0][1] == VoteReply(
        VOTERS, 3, granted=True
    )
    again = a_voter()
    assert said(say(again, "c", VoteRequest(VOTERS, 3), 1.5))[0][1] == VoteReply(
        VOTERS, 3, granted=True
    )


def test_whoever_followed_a_heartbeat_votes_for_nobody_for_a_while() -> None:
    voter = a_voter()
    say(voter, "b", Heartbeat(VOTERS, 1, 0.0), 5.0)
    for request in (PreVote(VOTERS, 2), VoteRequest(VOTERS, 2)):
        ((_, reply),) = said(say(voter, "c", request, 5.99))
        assert isinstance(reply, PreVoteReply | VoteReply)
        assert not reply.granted
        assert (voter.term, voter.leader) == (1, "b"), "not even the term is taken over"
    for request in (PreVote(VOTERS, 2), VoteRequest(VOTERS, 2)):
        ((_, reply),) = said(say(voter, "c", request, 6.01))
        assert isinstance(reply, PreVoteReply | VoteReply)
        assert reply.granted


def test_one_that_has_just_started_votes_for_nobody_for_a_while() -> None:
    voter = a_voter(saved=SaveVote(1, None))
    ((_, reply),) = said(say(voter, "c", VoteRequest(VOTERS, 2), 0.99))
    assert reply == VoteReply(VOTERS, 1, granted=False)
    ((_, reply),) = said(say(voter, "c", VoteRequest(VOTERS, 2), 1.01))
    assert reply == VoteReply(VOTERS, 2, granted=True)


def test_a_pre_vote_is_for_newer_terms_only_and_changes_nothing() -> None:
    voter = a_voter(saved=SaveVote(5, None))
    refused = say(voter, "c", PreVote(VOTERS, 5), 1.5)
    assert refused == [SendPacket("c", terms_codec.encode(PreVoteReply(VOTERS, 5, granted=False)))]
    granted = say(voter, "c", PreVote(VOTERS, 6), 1.5)
    assert granted == [SendPacket("c", terms_codec.encode(PreVoteReply(VOTERS, 6, granted=True)))]
    assert voter.term == 5


def test_requests_are_repeated_to_those_who_have_not_agreed() -> None:
    candidate, now = a_candidate()
    say(candidate, "d", VoteReply(VOTERS, 1, granted=True), now)
    assert [to for to, _ in said(candidate.tick(now + 0.2))] == ["b", "c", "e"]


def test_replies_to_older_questions_and_from_one_peer_twice_do_not_count() -> None:
    candidate, now = a_candidate()
    for _ in range(3):
        say(candidate, "b", VoteReply(VOTERS, 1, granted=True), now)
        say(candidate, "c", VoteReply(VOTERS, 0, granted=True), now)
        say(candidate, "d", PreVoteReply(VOTERS, 1, granted=True), now)
    assert not candidate.is_leader
    say(candidate, "e", VoteReply(VOTERS, 1, granted=True), now)
    assert candidate.is_leader


def test_a_promise_of_another_term_does_not_count() -> None:
    voter = a_voter(saved=SaveVote(5, None))
    voter.tick(now := voter.next_due)
    for sender in "bcde":
        say(voter, sender, PreVoteReply(VOTERS, 5, granted=True), now)
    assert voter.term == 5
    for sender in "bc":
        say(voter, sender, PreVoteReply(VOTERS, 6, granted=True), now)
    assert voter.term == 6


def test_a_candidate_that_is_outvoted_asks_again_in_a_newer_term() -> None:
    candidate, _ = a_candidate()
    now = candidate.next_due
    while not any(isinstance(m, PreVote) for _, m in said(candidate.tick(now))):
        now = candidate.next_due
    for sender in ("b", "c"):
        say(candidate, sender, PreVoteReply(VOTERS, 2, granted=True), now)
    assert candidate.term == 2


def test_a_candidate_follows_whoever_won_its_term() -> None:
    candidate, now = a_candidate()
    told = say(candidate, "b", Heartbeat(VOTERS, 1, 0.0), now)
    assert Tell(LeaderElected("b", 1)) in told
    assert candidate.leader == "b"
    say(candidate, "c", VoteReply(VOTERS, 1, granted=True), now)
    say(candidate, "d", VoteReply(VOTERS, 1, granted=True), now)
    assert not candidate.is_leader


@pytest.mark.parametrize(
    "message",
    [
        PreVoteReply(VOTERS, 7, granted=False),
        VoteReply(VOTERS, 7, granted=False),
        Heartbeat(VOTERS, 7, 0.0),
        HeartbeatReply(VOTERS, 7, 0.0),
    ],
)
def test_a_leader_that_hears_of_a_newer_term_steps_down(message: TermsMessage) -> None:
    leader, now = a_leader()
    told = say(leader, "e", message, now)
    assert told[0] == Tell(SaveVote(7, None))
    assert Tell(LeaderLost("a", 1, LossReason.SUPERSEDED)) in told
    assert not leader.is_leader
    assert leader.term == 7


def test_a_leader_is_not_disturbed_by_requests_for_votes() -> None:
    leader, now = a_leader()
    say(leader, "e", PreVote(VOTERS, 7), now)
    say(leader, "e", VoteRequest(VOTERS, 7), now)
    assert (leader.is_leader, leader.term) == (True, 1)


def test_a_leader_of_an_older_term_is_told_the_newer_one() -> None:
    voter = a_voter(saved=SaveVote(5, None))
    reply = say(voter, "b", Heartbeat(VOTERS, 4, 0.25), 0.5)
    assert said(reply) == [("b", HeartbeatReply(VOTERS, 5, 0.25))]
    assert voter.leader is None


def test_a_leader_without_a_majority_steps_down() -> None:
    leader, now = a_leader()
    leader.tick(now + 0.2)
    say(leader, "b", HeartbeatReply(VOTERS, 1, now), now + 0.2)  # one of four is no majority
    leader.tick(now + 0.99)
    assert leader.is_leader
    told = leader.tick(now + 1.01)
    assert told == [Tell(LeaderLost("a", 1, LossReason.NO_QUORUM))]
    assert not leader.is_leader


def test_a_leader_that_was_stopped_for_long_leads_no_more_whatever_it_reads_first() -> None:
    leader, now = a_leader()
    told = say(leader, "b", HeartbeatReply(VOTERS, 1, now), now + 60.0)
    assert told == [Tell(LeaderLost("a", 1, LossReason.NO_QUORUM))]


def test_a_lease_counts_from_when_the_heartbeat_was_sent() -> None:
    leader, now = a_leader()
    assert leader.confirmed_until == -math.inf
    leader.tick(now + 0.2)
    say(leader, "b", HeartbeatReply(VOTERS, 1, now + 0.2), now + 0.9)
    assert leader.confirmed_until == -math.inf
    say(leader, "c", HeartbeatReply(VOTERS, 1, now), now + 0.9)
    assert leader.confirmed_until == pytest.approx(now + 1.0)
    say(leader, "d", HeartbeatReply(VOTERS, 1, now + 0.2), now + 0.9)
    assert leader.confirmed_until == pytest.approx(now + 1.2)
    say(leader, "b", HeartbeatReply(VOTERS, 1, now), now + 0.9)  # an older one, late
    assert leader.confirmed_until == pytest.approx(now + 1.2)


def test_a_lease_is_shorter_by_what_clocks_may_drift() -> None:
    settings = TermsSettings(clock_drift_max=0.1)
    leader = Terms("a", ["a", "b"], rng=random.Random(1), settings=settings)
    leader.start(0.0)
    now = leader.next_due
    leader.tick(now)
    sums = {message.voters for _, message in said(leader.tick(leader.next_due))}
    (voters,) = sums
    say(leader, "b", PreVoteReply(voters, 1, granted=True), now + 0.3)
    say(leader, "b", VoteReply(voters, 1, granted=True), now + 0.3)
    say(leader, "b", HeartbeatReply(voters, 1, now + 0.3), now + 0.3)
    assert leader.confirmed_until == pytest.approx(now + 0.3 + 0.9 / 1.1)


def test_a_suspicion_shortens_the_wait_but_not_below_what_leases_rest_on() -> None:
    voter = a_voter()
    say(voter, "b", Heartbeat(VOTERS, 1, 0.0), 5.0)
    assert voter.suspect("c", 5.1) == []
    told = voter.suspect("b", 5.1)
    assert told == [Tell(LeaderLost("b", 1, LossReason.SUSPECTED))]
    assert voter.next_due == pytest.approx(6.0)
    assert said(voter.tick(6.0))


def test_a_suspected_leader_that_is_heard_leads_again_in_its_term() -> None:
    voter = a_voter()
    say(voter, "b", Heartbeat(VOTERS, 1, 0.0), 5.0)
    voter.suspect("b", 5.1)
    told = say(voter, "b", Heartbeat(VOTERS, 1, 0.2), 5.2)
    assert told[0] == Tell(LeaderElected("b", 1))


def test_two_leaders_of_one_term_are_an_error_of_the_voters() -> None:
    voter = a_voter()
    say(voter, "b", Heartbeat(VOTERS, 1, 0.0), 5.0)
    with pytest.raises(ProtocolError, match="not saved"):
        say(voter, "c", Heartbeat(VOTERS, 1, 0.0), 5.0)
    assert voter.leader == "b"


@pytest.mark.parametrize(
    ("message", "sender"),
    [
        (VoteRequest(VOTERS + 1, 3), "b"),
        (VoteRequest(VOTERS, 3), "stranger"),
        (VoteRequest(VOTERS, 3), "a"),
        (HeartbeatReply(VOTERS, 0, 99.0), "b"),
        (HeartbeatReply(VOTERS, 0, math.nan), "b"),
        (Heartbeat(VOTERS, 3, math.nan), "b"),
        (Heartbeat(VOTERS, 3, math.inf), "b"),
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(message: TermsMessage, sender: str) -> None:
    voter = a_voter()
    before = (voter.vote, voter.next_due, voter.leader)
    with pytest.raises(ProtocolError):
        say(voter, sender, message, 1.5)
    assert (voter.vote, voter.next_due, voter.leader) == before


def test_what_cannot_work_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="heartbeat_interval_s"):
        TermsSettings(heartbeat_interval_s=0.6)
    with pytest.raises(InvalidRequest, match="election_timeout_max_s"):
        TermsSettings(election_timeout_max_s=1.0)
    with pytest.raises(InvalidRequest, match="clock_drift_max"):
        TermsSettings(clock_drift_max=1.0)
    with pytest.raises(InvalidRequest, match="stranger"):
        a_voter().suspect("stranger", 0.0)
    with pytest.raises(InvalidRequest, match="saved vote"):
        a_voter(saved=SaveVote(1, "stranger"))
    with pytest.raises(InvalidRequest, match="own list"):
        Terms("x", NAMES, rng=random.Random(1))
    with pytest.raises(InvalidRequest, match="twice"):
        Terms("a", ["a", "a"], rng=random.Random(1))
    with pytest.raises(InvalidRequest, match="1 to 128 bytes"):
        Terms("a", ["a", ""], rng=random.Random(1))
    with pytest.raises(InvalidRequest, match="at most 1,000"):
        Terms("0", [str(number) for number in range(1_001)], rng=random.Random(1))


def test_a_damaged_vote_is_not_taken_for_one() -> None:
    data = SaveVote(7, "b").to_bytes()
    assert SaveVote.from_bytes(data) == SaveVote(7, "b")
    assert SaveVote.from_bytes(SaveVote(0, None).to_bytes()) == SaveVote(0, None)
    for at in range(len(data)):
        flipped = bytes((*data[:at], data[at] ^ 1, *data[at + 1 :]))
        with pytest.raises(DataUnreadable):
            SaveVote.from_bytes(flipped)
        with pytest.raises(DataUnreadable):
            SaveVote.from_bytes(data[:at])
