"""Elections by majority in numbered terms, as in Raft (Ongaro, 2014): never two leaders in one term.

A peer that hears no leader for a random while asks whether a majority would vote for it (pre-vote), and
only if so begins a new term and asks for the votes.  Everyone votes once in a term.  Two majorities
have a peer in common, so a term has one leader at most.

A vote must outlive the process that gave it, or a peer could vote twice.  So whatever changes the vote
makes `Tell(SaveVote(...))` the *first* effect of the call: carry it out durably before any of the
others, and pass what was saved last as `saved` after a restart.  `Persisted` does so for any driver.
**Without that, a restarted peer can give a term to a second leader.**

A leader that does not hear a majority steps down (check-quorum).  Still, a leader can be the last to
know that it is none: stopped by the scheduler, it may wake up and act.  Leadership is therefore only as
good as the fencing of what the leader does: the term is the fencing token, and whatever the leader
writes to must refuse a smaller one.  `confirmed_until` is a lease, for what needs less: it says until
when no other can lead, as long as clocks run at rates that differ by no more than `clock_drift_max`.

The voters are fixed.  Peers with another list are another group, whose terms may repeat those of the
first; messages between the two are refused.

Invariants
    * `term` and the vote change only together with a `SaveVote` that comes first.
    * In one term a peer votes for one candidate, and leads only with the votes of a majority.
    * A peer that has followed a heartbeat votes for nobody until `election_timeout_min_s` later, by its
      clock; nor does a peer that has just started, since it may have followed one before.
"""

from __future__ import annotations

import enum
import math
import random
import zlib
from collections.abc import Iterable
from typing import Annotated, Protocol, assert_never

import msgspec

from quoracy.errors import DataUnreadable, ProtocolError, Unavailable
from quoracy.membership.codec import UNREADABLE
from quoracy.membership.elections.elector import Assumptions, Elector, LossReason, require
from quoracy.membership.elections.messages import (
    TERM_MAX,
    Heartbeat,
    HeartbeatReply,
    PreVote,
    PreVoteReply,
    TermsMessage,
    VoteReply,
    VoteRequest,
    terms_codec,
)
from quoracy.membership.machine import Address, Effect, SendPacket, Tell

__all__ = ["MemoryVote", "Persisted", "SaveVote", "Terms", "TermsSettings", "VoteStorage"]

_MAGIC = b"quoracy vote 1\n"


class SaveVote(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a voter must not forget: the newest term it knows of, and for whom it voted in it.

    Make it durable before any effect that follows it in the same list is carried out.  If that fails,
    carry out none of them and let the elector go: it has promised what nobody remembers.

    >>> SaveVote.from_bytes(SaveVote(3, "b").to_bytes())
    SaveVote(term=3, voted_for='b')
    """

    term: Annotated[int, msgspec.Meta(ge=0, le=TERM_MAX + 1)]
    voted_for: str | None

    def to_bytes(self) -> bytes:
        """For a file: with a checksum, since half a vote must not be taken for one."""
        body = msgspec.msgpack.encode(self)
        return _MAGIC + zlib.crc32(body).to_bytes(4, "big") + body

    @classmethod
    def from_bytes(cls, data: bytes) -> SaveVote:
        """Raises `DataUnreadable` for whatever `to_bytes` did not make."""
        checksum, body = data[len(_MAGIC) : len(_MAGIC) + 4], data[len(_MAGIC) + 4 :]
        if not data.startswith(_MAGIC) or zlib.crc32(body).to_bytes(4, "big") != checksum:
            raise DataUnreadable(
                f"{len(data)} bytes are no saved vote, or are damaged. Without the vote this peer must "
                "not vote in the terms it may have voted in: restore it, or leave the peer out."
            )
        try:
            return msgspec.msgpack.decode(body, type=cls)
        except UNREADABLE as error:
            raise DataUnreadable(f"a saved vote cannot be read: {error}") from error


class VoteStorage(Protocol):
    """Where a voter keeps its vote."""

    def save(self, vote: SaveVote) -> None:
        """Replace what was saved.  On return it is durable; raises if it may not be."""
        ...

    def load(self) -> SaveVote | None:
        """What was saved last; `None` only if nothing ever was."""
        ...


class MemoryVote:
    """A storage that lasts as long as this object: for simulations and tests.

    >>> storage = MemoryVote()
    >>> storage.save(SaveVote(1, "a"))
    >>> storage.load()
    SaveVote(term=1, voted_for='a')
    """

    _vote: SaveVote | None = None

    def save(self, vote: SaveVote) -> None:
        self._vote = vote

    def load(self) -> SaveVote | None:
        return self._vote


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
        require(
            0 < self.heartbeat_interval_s <= self.election_timeout_min_s / 2,
            f"heartbeat_interval_s ({self.heartbeat_interval_s}) must be more than 0 and at most half "
            f"of election_timeout_min_s ({self.election_timeout_min_s}): one may be lost",
        )
        require(
            self.election_timeout_min_s < self.election_timeout_max_s < math.inf,
            f"election_timeout_max_s ({self.election_timeout_max_s}) must be more than "
            f"election_timeout_min_s ({self.election_timeout_min_s}): the difference keeps votes from "
            "being split",
        )
        require(
            0 <= self.clock_drift_max < 1,
            f"clock_drift_max must be from 0 to below 1, not {self.clock_drift_max}",
        )


class _Role(enum.Enum):
    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"  # asks who would vote for it
    CANDIDATE = "candidate"
    LEADER = "leader"


class Terms(Elector):
    """One voter of an election by majority.

    saved: what the last `SaveVote` of an earlier life said; without it, this must be the first life.

    >>> terms = Terms("a", ["a"], rng=random.Random(1))
    >>> _ = terms.start(now=0.0)
    >>> terms.tick(now=terms.next_due)[0]  # comes first: save it before anything else is done
    Tell(event=SaveVote(term=1, voted_for='a'))
    >>> terms.is_leader, terms.term
    (True, 1)
    """

    assumptions = Assumptions(
        algorithm="Terms (majority)",
        assumes=(
            "Every peer has the same list of voters, and it does not change.",
            (
                "A majority of the voters lives and can talk to each other most of the time; only to "
                "have a leader, never for there to be one at most."
            ),
            "A vote that was saved is still there after a restart.",
        ),
        two_leaders="Never in one term. In different terms for a moment: one that was cut off or "
        "stopped believes that it leads until it hears of the new term or misses its majority.",
        messages="4(n - 1) for an election among n peers that succeeds at once; n - 1 heartbeats and "
        "as many replies per interval.",
        may="Lead, and pass the term along as the fencing token of everything the leader does.",
        may_not="Act on is_leader where the term is not checked, change the voters while peers run, or "
        "run without saved votes.",
    )

    def __init__(
        self,
        name: str,
        voters: Iterable[str],
        *,
        rng: random.Random,
        settings: TermsSettings | None = None,
        saved: SaveVote | None = None,
    ) -> None:
        self._saved = saved or SaveVote(0, None)
        super().__init__(name, voters, None, rng, self._saved.term)
        self._majority = len(self._peers) // 2 + 1
        self._voters = zlib.crc32("\0".join(sorted(self._peers)).encode())
        self._settings = settings or TermsSettings()
        self._voted_for = self._saved.voted_for
        require(
            self._voted_for in (None, *self._peers),
            f"the saved vote of {name!r} is for {self._voted_for!r}, which is not one of the voters. "
            "It belongs to another group of peers; the list of voters cannot be changed.",
        )
        self._role = _Role.FOLLOWER
        self._in_favour: set[str] = set()  # who granted the pre-vote or vote that is asked for
        self._bound_until = -math.inf  # until then nobody gets our vote
        self._election_due = math.inf
        self._send_due = math.inf  # heartbeats of a leader, requests of a candidate
        self._elected_at = -math.inf
        self._contacts: dict[str, float] = {}  # when the newest heartbeat that was replied to was sent

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
        return SaveVote(self.term, self._voted_for)

    def start(self, now: float) -> list[Effect]:
        # A leader that is there gets the time to say so, and in an earlier life we may have followed
        # a heartbeat a moment ago.
        self._bound_until = now + self._settings.election_timeout_min_s
        self._wait_for_leader(now)
        return self._done([])

    def tick(self, now: float) -> list[Effect]:
        effects = self._check_quorum(now)
        if self._election_due <= now:
            self._role, self._in_favour = _Role.PRE_CANDIDATE, {self.name}
            self._election_due = now + self._random_timeout()
            effects += [*self._lost(LossReason.SILENT), *self._campaign(now)]
        elif self._send_due <= now:
            effects += self._beat(now) if self._role is _Role.LEADER else self._request(now)
        return self._done(effects)

    def receive(self, data: bytes, sender: Address, now: float) -> list[Effect]:
        message = terms_codec.decode(data)
        self._check(message, sender, now)
        effects = self._check_quorum(now)  # if we were stopped for long, we may lead no more
        match message:
            case PreVote():
                granted = message.term > self.term and not self._is_bound(now)
                term = message.term if granted else self.term
                effects += self._send(sender, PreVoteReply(self._voters, term, granted))
            case VoteRequest():
                effects += self._vote(message, sender, now)
            case PreVoteReply() | VoteReply():
                effects += self._voted(message, sender, now)
            case Heartbeat():
                effects += self._heartbeat(message, sender, now)
            case HeartbeatReply():
                if self._role is _Role.LEADER and message.term == self.term:
                    self._contacts[sender] = max(self._contacts[sender], message.sent_at)
                effects += self._adopt(message.term, now)
            case _:
                assert_never(message)
        return self._done(effects)

    def unreachable(self, to: Address, now: float) -> list[Effect]:  # noqa: ARG002 (of every elector)
        return self._done([])  # silence is noticed by itself

    def suspect(self, peer: str, now: float) -> list[Effect]:
        """If the leader is suspected, ask for votes as soon as a majority may give them.

        The random wait is left out, but not the `election_timeout_min_s` since the last heartbeat: the
        lease of the leader rests on that.
        """
        self._check_suspect(peer)
        if peer != self.leader:
            return self._done([])
        self._election_due = min(self._election_due, max(now, self._bound_until))
        return self._done(self._lost(LossReason.SUSPECTED))

    def _done(self, effects: list[Effect]) -> list[Effect]:
        self.next_due = min(self._election_due, self._send_due, self._quorum_due())
        if self.vote == self._saved:
            return effects
        self._saved = self.vote
        return [Tell(self._saved), *effects]

    # -- asking for votes ----------------------------------------------------------------------------

    def _campaign(self, now: float) -> list[Effect]:
        """Go on if there is a majority already, which a single voter is by itself; else ask for one."""
        if len(self._in_favour) < self._majority:
            return self._request(now)
        if self._role is _Role.PRE_CANDIDATE:
            effects = self._lost(LossReason.SUPERSEDED)
            self._role, self._in_favour = _Role.CANDIDATE, {self.name}
            self.term += 1
            self._voted_for = self.name
            self._election_due = now + self._random_timeout()
            return [*effects, *self._campaign(now)]
        self._role = _Role.LEADER
        self._elected_at = now
        self._election_due = math.inf
        self._contacts = dict.fromkeys(self._others, -math.inf)
        return [*self._elected(self.name, self.term), *self._beat(now)]

    def _request(self, now: float) -> list[Effect]:
        """To those who have not agreed: requests and replies get lost."""
        if self._role is _Role.PRE_CANDIDATE:
            message: TermsMessage = PreVote(self._voters, self.term + 1)
        else:
            message = VoteRequest(self._voters, self.term)
        self._send_due = now + self._settings.heartbeat_interval_s
        asked = [peer for peer in self._others if peer not in self._in_favour]
        return [effect for peer in asked for effect in self._send(peer, message)]

    def _voted(self, reply: PreVoteReply | VoteReply, sender: str, now: float) -> list[Effect]:
        if not reply.granted:
            return self._adopt(reply.term, now)
        asked = (_Role.CANDIDATE, self.term)
        if isinstance(reply, PreVoteReply):
            asked = (_Role.PRE_CANDIDATE, self.term + 1)
        if (self._role, reply.term) != asked:
            return []
        self._in_favour.add(sender)
        return self._campaign(now) if len(self._in_favour) >= self._majority else []

    # -- giving votes --------------------------------------------------------------------------------

    def _is_bound(self, now: float) -> bool:
        """Whether a leader may rely on us, so that no other can win with our vote."""
        return self._role is _Role.LEADER or now < self._bound_until

    def _vote(self, request: VoteRequest, sender: str, now: float) -> list[Effect]:
        is_bound = self._is_bound(now)
        effects = [] if is_bound else self._adopt(request.term, now)
        granted = (
            request.term == self.term and self._voted_for in (None, sender) and not self._is_bound(now)
        )
        if granted:
            self._voted_for = sender
            self._wait_for_leader(now)
        return [*effects, *self._send(sender, VoteReply(self._voters, self.term, granted))]

    # -- leading and following -----------------------------------------------------------------------

    def _heartbeat(self, beat: Heartbeat, sender: str, now: float) -> list[Effect]:
        effects: list[Effect] = []
        if beat.term >= self.term:
            effects = self._adopt(beat.term, now)
            self._bound_until = now + self._settings.election_timeout_min_s
            self._wait_for_leader(now)
            effects += self._elected(sender, beat.term)
        # A leader of an older term learns from the reply that it is no longer the leader.
        reply = HeartbeatReply(self._voters, self.term, beat.sent_at)
        return [*effects, *self._send(sender, reply)]

    def _beat(self, now: float) -> list[Effect]:
        self._send_due = now + self._settings.heartbeat_interval_s
        beat = Heartbeat(self._voters, self.term, now)
        return [effect for peer in self._others for effect in self._send(peer, beat)]

    def _check_quorum(self, now: float) -> list[Effect]:
        if now < self._quorum_due():
            return []
        self._wait_for_leader(now)
        return self._lost(LossReason.NO_QUORUM)

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
        if term <= self.term:
            return []
        effects = self._lost(LossReason.SUPERSEDED)
        self.term, self._voted_for = term, None
        if self._role is not _Role.FOLLOWER:
            self._wait_for_leader(now)
        return effects

    def _wait_for_leader(self, now: float) -> None:
        self._role = _Role.FOLLOWER
        self._in_favour = set()
        self._send_due = math.inf
        self._election_due = now + self._random_timeout()

    def _random_timeout(self) -> float:
        settings = self._settings
        return self._rng.uniform(settings.election_timeout_min_s, settings.election_timeout_max_s)

    def _send(self, to: str, message: TermsMessage) -> list[Effect]:
        return [SendPacket(to, terms_codec.encode(message))]

    def _check(self, message: TermsMessage, sender: str, now: float) -> None:
        self._check_peers(sender)
        problem = ""
        if message.voters != self._voters:
            problem = "has another list of voters: all must have the list they were first started with"
        elif isinstance(message, Heartbeat) and not math.isfinite(message.sent_at):
            problem = f"says that a heartbeat was sent at {message.sent_at}"
        elif isinstance(message, HeartbeatReply) and not message.sent_at <= now:
            problem = f"replies to a heartbeat of {message.sent_at}, and it is {now}"
        elif (
            isinstance(message, Heartbeat)
            and message.term == self.term
            and self.leader not in (None, sender)
        ):
            problem = (
                f"claims to lead in term {message.term}, in which {self.leader} leads: a vote was not "
                "saved, or not given back after a restart; see Persisted"
            )
        if problem:
            raise ProtocolError(f"{self.name} refuses a message from {sender}, which {problem}.")


class Persisted(Terms):
    """`Terms` on a storage.  Takes up what was saved; saves before it returns any effect.

    A save that fails is raised to the driver, and every call after it raises `Unavailable`: this voter
    has decided what is not written down.  Make a new one when the storage works again.

    The storage is called in between, so a slow one holds up the caller.  Where that matters, drive
    `Terms` itself and carry out its effects in their order.

    >>> storage = MemoryVote()
    >>> voter = Persisted("a", ["a"], storage=storage, rng=random.Random(1))
    >>> _ = voter.start(now=0.0)
    >>> voter.tick(now=voter.next_due)
    [Tell(event=LeaderElected(leader='a', term=1))]
    >>> storage.load()
    SaveVote(term=1, voted_for='a')
    """

    def __init__(
        self,
        name: str,
        voters: Iterable[str],
        *,
        storage: VoteStorage,
        rng: random.Random,
        settings: TermsSettings | None = None,
    ) -> None:
        super().__init__(name, voters, rng=rng, settings=settings, saved=storage.load())
        self._storage = storage
        self._failed: Exception | None = None

    @property
    def is_leader(self) -> bool:
        """As of `Terms`; never when a vote could not be saved."""
        return self._failed is None and super().is_leader

    def _done(self, effects: list[Effect]) -> list[Effect]:
        if self._failed is not None:
            raise Unavailable(
                f"{self.name} votes no more: a vote could not be saved ({self._failed}). Repair the "
                "storage, then start a new voter on it."
            )
        before = self._saved
        effects = super()._done(effects)
        if self._saved is before:
            return effects
        try:
            self._storage.save(self._saved)
        except Exception as error:
            self._failed = error
            raise
        return effects[1:]
