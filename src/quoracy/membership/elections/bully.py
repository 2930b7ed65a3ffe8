"""The Bully algorithm (Garcia-Molina, 1982): whoever lives and outranks all others leads.

A peer that misses its leader asks everyone higher.  If one answers, that one takes over; if none does,
the peer announces itself to all.  A higher peer that comes up, or hears that a lower one leads, takes
the leadership away: hence the name.

Added to the paper: a term in every announcement, so that an old one that arrives late is ignored; and
the leader repeats its announcement as a heartbeat, so that lost announcements and healed partitions
sort themselves out.  Announcements are ordered by term, then by rank.

Invariants
    * No announcement that is older than the newest accepted one changes anything.
    * A peer never follows one that it outranks.
    * Every election ends: each of its two waits has a deadline, and without an answer the peer leads.
    * What is kept is bounded by the number of peers.
"""

from __future__ import annotations

import enum
import math
import random
from collections.abc import Iterable, Mapping
from typing import ClassVar, assert_never

import msgspec

from quoracy.errors import InvalidRequest, ProtocolError
from quoracy.membership.elections.interface import Assumptions, LossReason
from quoracy.membership.elections.messages import (
    Answer,
    BullyMessage,
    Coordinator,
    Election,
    bully_codec,
)
from quoracy.membership.elections.peers import Peers, Rank
from quoracy.membership.elections.view import LeaderView, Seen
from quoracy.membership.machine import Address, Effect, SendPacket, SendStream

__all__ = ["BULLY_ASSUMPTIONS", "Bully", "BullySettings"]

BULLY_ASSUMPTIONS = Assumptions(
    algorithm="Bully",
    assumes=(
        "Every peer knows all peers and their priorities, and these do not change.",
        "Messages arrive and are answered within the timeouts (a synchronous network).",
        "A peer that does not answer in time has failed.",
    ),
    two_leaders=(
        "Whenever a message or a peer is slower than a timeout, and for as long as a partition lasts: "
        "each side has its own leader. Two leaders can even have the same term."
    ),
    messages=(
        "At worst about n²/2 questions, as many answers and n announcements for n peers; n - 1 "
        "heartbeats per interval."
    ),
    may="Spread work, choose who talks to the outside, avoid doing the same thing twice.",
    may_not="Protect anything that two must never do at once, or use its term as a fencing token.",
)


class BullySettings(msgspec.Struct, frozen=True, kw_only=True):
    """How long a peer waits.  All peers should have the same.

    answer_timeout_s: more than a round trip takes; without an answer from anyone higher, the peer
    leads. coordinator_timeout_s: how long one that was answered waits for a leader before it asks
    again. heartbeat_interval_s: how often the leader says that it leads.
    leader_timeout_s: a leader that is silent for so long (and up to a fifth longer, so that not
    everyone asks at once) is lost.

    >>> BullySettings(answer_timeout_s=0.2).coordinator_timeout_s
    1.5
    """

    answer_timeout_s: float = 0.5
    coordinator_timeout_s: float = 1.5
    heartbeat_interval_s: float = 0.5
    leader_timeout_s: float = 2.0

    def __post_init__(self) -> None:
        for field in self.__struct_fields__:
            if not 0 < getattr(self, field) < math.inf:
                raise InvalidRequest(f"{field} must be more than 0, not {getattr(self, field)}")
        if self.coordinator_timeout_s <= self.answer_timeout_s:
            raise InvalidRequest(
                f"coordinator_timeout_s ({self.coordinator_timeout_s}) must be more than "
                f"answer_timeout_s ({self.answer_timeout_s}): whoever takes over waits for answers "
                "first"
            )
        if self.leader_timeout_s < 2 * self.heartbeat_interval_s:
            raise InvalidRequest(
                f"leader_timeout_s ({self.leader_timeout_s}) must be at least twice "
                f"heartbeat_interval_s ({self.heartbeat_interval_s}): one lost heartbeat is no failure"
            )


class _Phase(enum.Enum):
    ASKING = "asking"  # those who are higher were asked
    WAITING = "waiting"  # one of them answered and should lead soon
    FOLLOWING = "following"
    LEADING = "leading"


class Bully(Seen):
    """One peer of a Bully election.

    priorities: who outranks whom; equal ones, and those not listed (0), are ordered by name.
    term: the newest term known from an earlier life, if the caller kept it.

    >>> bully = Bully("b", ["a", "b"], rng=random.Random(1))
    >>> [type(effect).__name__ for effect in bully.start(now=0.0)]  # nobody is higher
    ['Tell', 'SendStream', 'SendPacket']
    >>> bully.leader, bully.term, bully.is_leader
    ('b', 1, True)
    """

    assumptions: ClassVar[Assumptions] = BULLY_ASSUMPTIONS

    def __init__(
        self,
        name: str,
        peers: Iterable[str],
        *,
        rng: random.Random,
        priorities: Mapping[str, int] | None = None,
        settings: BullySettings | None = None,
        term: int = 0,
    ) -> None:
        self.next_due = math.inf
        self._peers = Peers(name, peers, priorities=priorities)
        self._rng = rng
        self._settings = settings or BullySettings()
        self._view = LeaderView(term)
        self._newest: tuple[int, Rank] = (term, (-1 << 63, ""))  # the newest announcement accepted
        self._term_seen = term
        self._phase = _Phase.FOLLOWING
        self._deadline = math.inf  # of the phase; for a leader, when the next heartbeat is due
        self._doubt_at = -math.inf  # from then on the leader, if there is one, is late
        self._attempt = 0
        self._unanswered: set[str] = set()
        self._suspected: set[str] = set()

    def start(self, now: float) -> list[Effect]:
        """Begin by asking who is there; the highest of all leads at once."""
        return self._done(self._ask(now))

    def tick(self, now: float) -> list[Effect]:
        """Do what is due: end a wait, miss a leader, send heartbeats."""
        if now < self._deadline:
            return []
        match self._phase:
            case _Phase.ASKING:
                effects = self._lead(now)
            case _Phase.WAITING:
                effects = self._ask(now)
            case _Phase.FOLLOWING:
                effects = [*self._view.lost(LossReason.SILENT), *self._ask(now)]
            case _Phase.LEADING:
                effects = self._beat(now)
        return self._done(effects)

    def receive(self, data: bytes, sender: Address, now: float) -> list[Effect]:
        """A message from another peer.  Raises `ProtocolError` if it makes no sense."""
        message = bully_codec.decode(data)
        self._check(message, sender)
        self._suspected.discard(sender)
        match message:
            case Election():
                effects = self._asked(message, sender, now)
            case Answer():
                effects = self._answered(message, now)
            case Coordinator():
                effects = self._announced(message, sender, now)
            case _:
                assert_never(message)
        return self._done(effects)

    def receive_stream(self, data: bytes, sender: Address, now: float) -> list[Effect]:
        """The same messages, however they come."""
        return self.receive(data, sender, now)

    def unreachable(self, to: Address, now: float) -> list[Effect]:
        """One that cannot be reached is not waited for."""
        return self._done(self._no_answer_from(to, now))

    def suspect(self, peer: str, now: float) -> list[Effect]:
        """A failure detector thinks that the peer failed; believed until the peer is heard again.

        >>> bully = Bully("a", ["a", "b"], rng=random.Random(1))
        >>> _ = bully.start(now=0.0)
        >>> _ = bully.suspect("b", now=0.0)
        >>> bully.leader
        'a'
        """
        if peer not in self._peers.others:
            raise InvalidRequest(f"{peer!r} is not one of the other peers of {self.name!r}")
        self._suspected.add(peer)
        lost = self._view.lost(LossReason.SUSPECTED) if peer == self._view.leader else []
        if lost and self._phase is _Phase.FOLLOWING:
            return self._done([*lost, *self._ask(now)])
        return self._done([*lost, *self._no_answer_from(peer, now)])

    # --- what happens

    def _ask(self, now: float) -> list[Effect]:
        """Hold an election.  The suspected are asked as well, in case they live, but not waited for."""
        self._attempt += 1
        self._phase = _Phase.ASKING
        self._deadline = now + self._settings.answer_timeout_s
        self._unanswered = set(self._peers.higher) - self._suspected
        question = bully_codec.encode(Election(self._attempt, self._term_seen))
        effects: list[Effect] = [SendStream(peer, question) for peer in self._peers.higher]
        return effects if self._unanswered else [*effects, *self._lead(now)]

    def _lead(self, now: float) -> list[Effect]:
        self._term_seen += 1
        term = self._term_seen
        self._phase = _Phase.LEADING
        self._unanswered.clear()
        self._newest = (term, self._peers.rank(self.name))
        news = bully_codec.encode(Coordinator(term))
        announcements = [SendStream(peer, news) for peer in self._peers.lower]
        return [*self._view.elected(self.name, term), *announcements, *self._beat(now)]

    def _beat(self, now: float) -> list[Effect]:
        self._deadline = now + self._settings.heartbeat_interval_s
        beat = bully_codec.encode(Coordinator(self._view.term))
        return [SendPacket(peer, beat) for peer in self._peers.others]

    def _asked(self, question: Election, sender: str, now: float) -> list[Effect]:
        self._term_seen = max(self._term_seen, question.term_seen)
        if self._phase is _Phase.LEADING:
            if self._term_seen > self._view.term:
                return self._lead(now)  # it would take our present term for an old one
            return [SendStream(sender, bully_codec.encode(Coordinator(self._view.term)))]
        answer = bully_codec.encode(Answer(question.attempt, self._term_seen))
        effects: list[Effect] = [SendStream(sender, answer)]
        # One whose leader was heard just now leaves it to that leader, which was asked as well.  Else
        # every question would lead to more of them, and these to more still.
        if self._phase is _Phase.FOLLOWING and now >= self._doubt_at:
            effects += self._ask(now)
        return effects

    def _answered(self, answer: Answer, now: float) -> list[Effect]:
        self._term_seen = max(self._term_seen, answer.term_seen)
        if self._phase is _Phase.ASKING and answer.attempt == self._attempt:
            self._phase = _Phase.WAITING
            self._deadline = now + self._settings.coordinator_timeout_s
            self._unanswered.clear()
        return []

    def _announced(self, news: Coordinator, sender: str, now: float) -> list[Effect]:
        self._term_seen = max(self._term_seen, news.term)
        announced = (news.term, self._peers.rank(sender))
        if announced < self._newest:
            return []
        if self._peers.outranks(self.name, sender):
            return self._bully(now)
        self._newest = announced
        self._phase = _Phase.FOLLOWING
        self._doubt_at = now + 1.5 * self._settings.heartbeat_interval_s
        self._deadline = now + self._settings.leader_timeout_s * self._rng.uniform(1.0, 1.2)
        self._unanswered.clear()
        return self._view.elected(sender, news.term)

    def _bully(self, now: float) -> list[Effect]:
        """A lower one leads in a newer term: the highest of us must announce a term newer still."""
        if self._phase in (_Phase.ASKING, _Phase.WAITING):
            return []
        lost = self._view.lost(LossReason.SUPERSEDED) if self._phase is _Phase.LEADING else []
        return [*lost, *self._ask(now)]

    def _no_answer_from(self, peer: str, now: float) -> list[Effect]:
        if self._phase is not _Phase.ASKING or peer not in self._unanswered:
            return []
        self._unanswered.discard(peer)
        return [] if self._unanswered else self._lead(now)

    def _check(self, message: BullyMessage, sender: str) -> None:
        self._peers.check_sender(sender)
        if isinstance(message, Answer | Election):
            is_higher = self._peers.outranks(sender, self.name)
            if is_higher != isinstance(message, Answer):
                raise ProtocolError(
                    f"{self.name} got {type(message).__name__} from {sender}, which is "
                    f"{'higher' if is_higher else 'lower'} here. Give all peers the same priorities."
                )

    def _done(self, effects: list[Effect]) -> list[Effect]:
        self.next_due = self._deadline
        return effects
