"""Elections by majority in numbered terms, as in Raft (Ongaro, 2014): never two leaders in one term.

A peer that hears no leader for a random while asks whether a majority would vote for it (pre-vote), and
only if so begins a new term and asks for the votes.  Everyone votes once in a term.  Two majorities
have a peer in common, so a term has one leader at most.

A vote must outlive the process that gave it, or a peer could vote twice.  So whatever changes the vote
makes `Tell(SaveVote(...))` the *first* effect of the call: carry it out durably before any of the
others, and pass what was saved last as `saved` after a restart.  `persisted.Persisted` does so for any
driver.  **Without that, a restarted peer can give a term to a second leader.**

A leader that does not hear a majority steps down (check-quorum).  Still, a leader can be the last to
know that it is none: stopped by the scheduler, it may wake up and act.  Leadership is therefore only as
good as the fencing of what the leader does: the term is the fencing token, and whatever the leader
writes to must refuse a smaller one.  `confirmed_until` is a lease, for what does not need that much: it
says until when no other can lead, as long as clocks run at rates that differ by no more than
`clock_drift_max`.

The voters are fixed.  Peers with another list are another group, whose terms may repeat those of the
first; messages between the two are refused.

Invariants
    * `term` and `voted_for` change only together with a `SaveVote` that comes first.
    * In one term a peer votes for one candidate, and leads only with the votes of a majority.
    * Whoever has followed a heartbeat votes for nobody until `election_timeout_min_s` later, by its
      clock; nor does a peer that has just started, since it may have followed one before.
"""

from __future__ import annotations

import enum
import math
import random
import zlib
from collections.abc import Iterable
from typing import ClassVar, assert_never

import msgspec

from quoracy.errors import InvalidRequest, ProtocolError
from quoracy.membership.elections.interface import Assumptions, LossReason
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
from quoracy.membership.elections.peers import Peers
from quoracy.membership.elections.view import LeaderView, Seen
from quoracy.membership.elections.vote import SaveVote
from quoracy.membership.machine import Address, Effect, SendPacket, Tell

__all__ = ["TERMS_ASSUMPTIONS", "Terms", "TermsSettings"]

TERMS_ASSUMPTIONS = Assumptions(
    algorithm="Terms (majority)",
    assumes=(
        "Every peer has the same list of voters, and it does not change.",
        (
            "A majority of the voters lives and can talk to each other most of the time; only to have "
            "a leader, never for there to be one at most."
        ),
        "A vote that was saved is still there after a restart.",
    ),
    two_leaders=(
        "Never in one term. In different terms for a moment: one that was cut off or stopped believes "
        "that it leads until it hears of the new term or misses its majority."
    ),
    messages=(
        "4(n - 1) for an election among n peers that succeeds at once; n - 1 heartbeats and as many "
        "replies per interval."
    ),
    may="Lead, and pass the term along as the fencing token of everything the leader does.",
    may_not=(
        "Act on is_leader where the term is not checked, change the voters while peers run, or run "
        "without saved votes."
    ),
)


class TermsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How long a peer waits.  All voters must have the same.

    election_timeout_min_s, election_timeout_max_s: a peer that hears no leader for a random time
    between the two asks for votes.  The span should be many times the latency, or votes are split
    often.
    heartbeat_interval_s: how often the leader says that it leads, and votes are asked for again.
    clock_drift_max: by what share the clock of a peer may be fast or slow; for `confirmed_until` only.
    """

    election_timeout_min_s: float = 1.0
    election_timeout_max_s: float = 2.0
    heartbeat_interval_s: float = 0.2
    clock_drift_max: float = 0.01

    def __post_init__(self) -> None:
        if not 0 < self.heartbeat_interval_s <= self.election_timeout_min_s / 2:
            raise InvalidRequest(
                f"heartbeat_interval_s ({self.heartbeat_interval_s}) must be more than 0 and at most "
                f"half of election_timeout_min_s ({self.election_timeout_min_s}): one lost heartbeat "
                "is no failure"
            )
        if not self.election_timeout_min_s < self.election_timeout_max_s < math.inf:
            raise InvalidRequest(
                f"election_timeout_max_s ({self.election_timeout_max_s}) must be more than "
                f"election_timeout_min_s ({self.election_timeout_min_s}): the difference keeps votes "
                "from being split"
            )
        if not 0 <= self.clock_drift_max < 1:
            raise InvalidRequest(
                f"clock_drift_max must be from 0 to below 1, not {self.clock_drift_max}"
            )


class _Role(enum.Enum):
    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"  # asks who would vote for it
    CANDIDATE = "candidate"
    LEADER = "leader"


class Terms(Seen):
    """One voter of an election by majority.

    saved: what the last `SaveVote` of an earlier life said; without it, this must be the first life.

    >>> terms = Terms("a", ["a"], rng=random.Random(1))
    >>> _ = terms.start(now=0.0)
    >>> terms.tick(now=terms.next_due)[0]  # comes first: save it before anything else is done
    Tell(event=SaveVote(term=1, voted_for='a'))
    >>> terms.is_leader, terms.term
    (True, 1)
    """

    assumptions: ClassVar[Assumptions] = TERMS_ASSUMPTIONS

    def __init__(
        self,
        name: str,
        voters: Iterable[str],
        *,
        rng: random.Random,
        settings: TermsSettings | None = None,
        saved: SaveVote | None = None,
    ) -> None:
        self._peers = Peers(name, voters)
        self._majority = len(self._peers.all) // 2 + 1
        self._voters = zlib.crc32("\0".join(sorted(self._peers.all)).encode())
        self._rng = rng
        self._settings = settings or TermsSettings()
        saved = saved or SaveVote(0, None)
        if saved.voted_for is not None and saved.voted_for not in self._peers.all:
            raise InvalidRequest(
                f"the saved vote of {name!r} is for {saved.voted_for!r}, which is not one of the "
                "voters. It belongs to another group of peers; the list of voters cannot be changed."
            )
        self._saved = saved
        self._view = LeaderView(saved.term)
        self._voted_for = saved.voted_for
        self._role = _Role.FOLLOWER
        self._in_favour: set[str] = set()  # who granted the pre-vote or vote that is asked for
        self._bound_until = -math.inf  # until then nobody gets our vote
        self._election_due = math.inf
        self._send_due = math.inf  # heartbeats of a leader, requests of a candidate
        self._elected_at = -math.inf
        self._contacts: dict[str, float] = {}  # when the newest heartbeat that was replied to was sent
        self.next_due = math.inf

    @property
    def term(self) -> int:
        """The newest term this peer knows of: the fencing token, if it leads."""
        return self._view.term

    @property
    def is_leader(self) -> bool:
        """Whether this peer won this term, and was not told otherwise up to the last call."""
        return self._role is _Role.LEADER

    @property
    def confirmed_until(self) -> float:
        """If this peer leads: until when no other can, by this peer's clock; `-inf` if that is unknown.

        Compare it with the time right before acting.  It is not a promise if clocks are worse than
        `clock_drift_max` says, or for anything that takes effect later than the comparison.
        """
        if self._role is not _Role.LEADER:
            return -math.inf
        drift = self._settings.clock_drift_max
        lease_s = self._settings.election_timeout_min_s * (1 - drift) / (1 + drift)
        return self._majority_contact() + lease_s

    @property
    def vote(self) -> SaveVote:
        """The term and the vote in it, as they must be saved."""
        return SaveVote(self._view.term, self._voted_for)

    def start(self, now: float) -> list[Effect]:
        """Begin as a follower: a leader that is there gets the time to say so."""
        # In an earlier life we may have followed a heartbeat a moment ago.
        self._bound_until = now + self._settings.election_timeout_min_s
        self._wait_for_leader(now)
        return self._done([])

    def tick(self, now: float) -> list[Effect]:
        """Do what is due: miss the leader, or the majority; send heartbeats; ask again."""
        effects = self._check_quorum(now)
        if self._role is _Role.LEADER:
            if self._send_due <= now:
                effects += self._beat(now)
        elif self._election_due <= now:
            effects += [*self._view.lost(LossReason.SILENT), *self._ask_before_voting(now)]
        elif self._send_due <= now:
            effects += self._request(now)
        return self._done(effects)

    def receive(self, data: bytes, sender: Address, now: float) -> list[Effect]:
        """A message from another voter.  Raises `ProtocolError` if it makes no sense."""
        message = terms_codec.decode(data)
        self._check(message, sender, now)
        effects = self._check_quorum(now)  # if we were stopped for long, we may lead no more
        match message:
            case PreVote():
                effects += self._pre_vote(message, sender, now)
            case PreVoteReply():
                effects += self._pre_voted(message, sender, now)
            case VoteRequest():
                effects += self._vote(message, sender, now)
            case VoteReply():
                effects += self._voted(message, sender, now)
            case Heartbeat():
                effects += self._heartbeat(message, sender, now)
            case HeartbeatReply():
                effects += self._heartbeat_replied(message, sender, now)
            case _:
                assert_never(message)
        return self._done(effects)

    def receive_stream(self, data: bytes, sender: Address, now: float) -> list[Effect]:
        """The same messages, however they come."""
        return self.receive(data, sender, now)

    def unreachable(self, to: Address, now: float) -> list[Effect]:  # noqa: ARG002 (of every machine)
        """Nothing to do: silence is noticed by itself."""
        return []

    def suspect(self, peer: str, now: float) -> list[Effect]:
        """A failure detector thinks that the peer failed.

        If that is the leader, votes are asked for as soon as a majority may give them, without the
        random wait; but not before `election_timeout_min_s` since its last heartbeat, since its lease
        rests on that.
        """
        if peer not in self._peers.others:
            raise InvalidRequest(f"{peer!r} is not one of the other voters of {self.name!r}")
        if peer != self._view.leader:
            return []
        self._election_due = min(self._election_due, max(now, self._bound_until))
        return self._done(self._view.lost(LossReason.SUSPECTED))

    # --- asking for votes

    def _ask_before_voting(self, now: float) -> list[Effect]:
        self._role = _Role.PRE_CANDIDATE
        self._in_favour = {self.name}
        self._election_due = now + self._random_timeout()
        return self._campaign(now)

    def _campaign(self, now: float) -> list[Effect]:
        """Go on if there is a majority already, which a single voter is by itself; else ask for one."""
        if len(self._in_favour) < self._majority:
            return self._request(now)
        if self._role is _Role.PRE_CANDIDATE:
            effects = self._view.advanced(self._view.term + 1)
            self._role = _Role.CANDIDATE
            self._voted_for = self.name
            self._in_favour = {self.name}
            self._election_due = now + self._random_timeout()
            return [*effects, *self._campaign(now)]
        self._role = _Role.LEADER
        self._elected_at = now
        self._election_due = math.inf
        self._contacts = dict.fromkeys(self._peers.others, -math.inf)
        return [*self._view.elected(self.name, self._view.term), *self._beat(now)]

    def _request(self, now: float) -> list[Effect]:
        """To those who have not agreed: requests and replies get lost."""
        message: TermsMessage
        if self._role is _Role.PRE_CANDIDATE:
            message = PreVote(self._voters, self._view.term + 1)
        else:
            message = VoteRequest(self._voters, self._view.term)
        self._send_due = now + self._settings.heartbeat_interval_s
        data = terms_codec.encode(message)
        return [SendPacket(peer, data) for peer in self._peers.others if peer not in self._in_favour]

    def _pre_voted(self, reply: PreVoteReply, sender: str, now: float) -> list[Effect]:
        if not reply.granted:
            return self._adopt(reply.term, now)
        if self._role is _Role.PRE_CANDIDATE and reply.term == self._view.term + 1:
            return self._agreed(sender, now)
        return []

    def _voted(self, reply: VoteReply, sender: str, now: float) -> list[Effect]:
        if not reply.granted:
            return self._adopt(reply.term, now)
        if self._role is _Role.CANDIDATE and reply.term == self._view.term:
            return self._agreed(sender, now)
        return []

    def _agreed(self, sender: str, now: float) -> list[Effect]:
        self._in_favour.add(sender)
        return self._campaign(now) if len(self._in_favour) >= self._majority else []

    # --- giving votes

    def _is_bound(self, now: float) -> bool:
        """Whether a leader may rely on us, so that no other can win with our vote."""
        return self._role is _Role.LEADER or now < self._bound_until

    def _pre_vote(self, request: PreVote, sender: str, now: float) -> list[Effect]:
        granted = request.term > self._view.term and not self._is_bound(now)
        term = request.term if granted else self._view.term
        return self._send(sender, PreVoteReply(self._voters, term, granted))

    def _vote(self, request: VoteRequest, sender: str, now: float) -> list[Effect]:
        effects: list[Effect] = []
        if request.term > self._view.term and not self._is_bound(now):
            effects = self._adopt(request.term, now)
        granted = (
            request.term == self._view.term
            and self._voted_for in (None, sender)
            and not self._is_bound(now)
        )
        if granted:
            self._voted_for = sender
            self._wait_for_leader(now)
        return [*effects, *self._send(sender, VoteReply(self._voters, self._view.term, granted))]

    # --- leading and following

    def _heartbeat(self, beat: Heartbeat, sender: str, now: float) -> list[Effect]:
        effects: list[Effect] = []
        if beat.term >= self._view.term:
            if beat.term > self._view.term:
                effects = self._adopt(beat.term, now)
            self._bound_until = now + self._settings.election_timeout_min_s
            self._wait_for_leader(now)
            effects += self._view.elected(sender, beat.term)
        # One that is in an older term learns from the reply that it leads no more.
        return [
            *effects,
            *self._send(sender, HeartbeatReply(self._voters, self._view.term, beat.sent_at)),
        ]

    def _heartbeat_replied(self, reply: HeartbeatReply, sender: str, now: float) -> list[Effect]:
        if self._role is _Role.LEADER and reply.term == self._view.term:
            self._contacts[sender] = max(self._contacts[sender], reply.sent_at)
        return self._adopt(reply.term, now)

    def _beat(self, now: float) -> list[Effect]:
        self._send_due = now + self._settings.heartbeat_interval_s
        data = terms_codec.encode(Heartbeat(self._voters, self._view.term, now))
        return [SendPacket(peer, data) for peer in self._peers.others]

    def _check_quorum(self, now: float) -> list[Effect]:
        if now < self._quorum_due():
            return []
        self._wait_for_leader(now)
        return self._view.lost(LossReason.NO_QUORUM)

    def _quorum_due(self) -> float:
        """When we must have heard a majority, if we lead."""
        if self._role is not _Role.LEADER:
            return math.inf
        return max(self._elected_at, self._majority_contact()) + self._settings.election_timeout_min_s

    def _majority_contact(self) -> float:
        """All of some majority, ourselves included, followed us at this time or later."""
        if self._majority == 1:
            return math.inf
        return sorted(self._contacts.values(), reverse=True)[self._majority - 2]

    def _adopt(self, term: int, now: float) -> list[Effect]:
        """A newer term, if it is one: whatever we were in the old one is over."""
        if term <= self._view.term:
            return []
        effects = self._view.advanced(term)
        self._voted_for = None
        if self._role is not _Role.FOLLOWER:
            self._wait_for_leader(now)
        return effects

    def _wait_for_leader(self, now: float) -> None:
        self._role = _Role.FOLLOWER
        self._in_favour = set()
        self._send_due = math.inf
        self._election_due = now + self._random_timeout()

    def _random_timeout(self) -> float:
        return self._rng.uniform(
            self._settings.election_timeout_min_s, self._settings.election_timeout_max_s
        )

    def _send(self, to: str, message: TermsMessage) -> list[Effect]:
        return [SendPacket(to, terms_codec.encode(message))]

    def _check(self, message: TermsMessage, sender: str, now: float) -> None:
        self._peers.check_sender(sender)
        if message.voters != self._voters:
            raise ProtocolError(
                f"{self.name} got a message from {sender}, which has another list of voters. Give all "
                "voters the list that they were first started with."
            )
        if isinstance(message, Heartbeat):
            if not math.isfinite(message.sent_at):
                raise ProtocolError(
                    f"{self.name} got a heartbeat from {sender} that was sent at no time"
                )
            if message.term == self._view.term and self._view.leader not in (None, sender):
                raise ProtocolError(
                    f"{sender} claims to lead in term {message.term}, in which {self._view.leader} "
                    "leads. A vote was not saved, or not given back after a restart: see Persisted."
                )
        if isinstance(message, HeartbeatReply) and not message.sent_at <= now:
            raise ProtocolError(
                f"{self.name} got a reply from {sender} to a heartbeat of {message.sent_at}, and it is "
                f"{now}"
            )

    def _done(self, effects: list[Effect]) -> list[Effect]:
        self.next_due = min(self._election_due, self._send_due, self._quorum_due())
        if self.vote == self._saved:
            return effects
        self._saved = self.vote
        return [Tell(self._saved), *effects]
