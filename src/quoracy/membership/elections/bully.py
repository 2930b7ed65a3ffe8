"""The Bully algorithm (Garcia-Molina, 1982): the peer that lives and outranks all others leads.

A peer that misses its leader asks everyone higher.  If one answers, that one takes over; if none does,
the peer announces itself to all.  A higher peer that comes up, or hears that a lower one leads, takes
the leadership away: hence the name.

Added to the paper: a term in every announcement, so that an old one that arrives late is ignored; and
the leader repeats its announcement as a heartbeat, which makes up for lost announcements and settles
who leads after a partition.

Invariants
    * Those of every `RankedElector`.
    * Every election ends: each of its two waits has a deadline, and without an answer the peer leads.
    * What is kept is bounded by the number of peers.
"""

from __future__ import annotations

import enum
import math
import random
from collections.abc import Iterable, Mapping

from quoracy.errors import ProtocolError
from quoracy.membership.elections.elector import (
    Assumptions,
    LossReason,
    RankedElector,
    RankedSettings,
    require,
)
from quoracy.membership.elections.messages import Answer, Coordinator, Election, bully_codec
from quoracy.membership.machine import Address, Effect, SendPacket, SendStream

__all__ = ["Bully", "BullySettings"]


class BullySettings(RankedSettings, frozen=True, kw_only=True):
    """How long a peer waits.  All peers should have the same.

    answer_timeout_s: more than a round trip takes; without an answer from anyone higher, the peer
    leads.
    coordinator_timeout_s: how long a peer that was answered waits for a leader before it asks again.
    heartbeat_interval_s: how often the leader says that it leads.
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
        super().__post_init__()
        require(
            self.coordinator_timeout_s > self.answer_timeout_s,
            f"coordinator_timeout_s ({self.coordinator_timeout_s}) must be more than answer_timeout_s "
            f"({self.answer_timeout_s}): the peer that takes over waits for answers first",
        )


class _Phase(enum.Enum):
    ASKING = "asking"  # those who are higher were asked
    WAITING = "waiting"  # one of them answered and should lead soon
    FOLLOWING = "following"
    LEADING = "leading"


class Bully(RankedElector):
    """One peer of a Bully election.

    priorities: who outranks whom; equal ones, and those not listed (0), are ordered by name.
    term: the newest term known from an earlier life, if the caller kept it.

    >>> bully = Bully("b", ["a", "b"], rng=random.Random(1))
    >>> [type(effect).__name__ for effect in bully.start(now=0.0)]  # nobody is higher
    ['Tell', 'SendStream', 'SendPacket']
    >>> bully.leader, bully.term, bully.is_leader
    ('b', 1, True)
    """

    assumptions = Assumptions(
        algorithm="Bully",
        assumes=(
            "Every peer knows all peers and their priorities, and these do not change.",
            "Messages arrive and are answered within the timeouts (a synchronous network).",
            "A peer that does not answer in time has failed.",
        ),
        two_leaders="Whenever a message or a peer is slower than a timeout, and for as long as a "
        "partition lasts: each side has its own leader. Two leaders can even have the same term.",
        messages="At worst about n²/2 questions, as many answers and n announcements for n peers; n - "
        "1 heartbeats per interval.",
        may="Spread work, choose who talks to the outside, avoid doing the same thing twice.",
        may_not="Protect anything that two must never do at once, or use its term as a fencing token.",
    )

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
        super().__init__(name, peers, priorities, rng, term)
        self._settings = settings or BullySettings()
        self._phase = _Phase.FOLLOWING
        downwards = sorted(self._others, key=self._rank, reverse=True)
        self._higher = tuple(peer for peer in downwards if self._outranks(peer, name))
        self._lower = tuple(peer for peer in downwards if self._outranks(name, peer))
        self.next_due = math.inf  # of the phase; for a leader, when the next heartbeat is due
        self._doubt_at = -math.inf  # from then on the leader, if there is one, is late
        self._attempt = 0
        self._unanswered: set[str] = set()
        self._suspected: set[str] = set()

    def start(self, now: float) -> list[Effect]:
        return self._ask(now)

    def tick(self, now: float) -> list[Effect]:
        if now < self.next_due:
            return []
        match self._phase:
            case _Phase.ASKING:
                return self._lead(now)
            case _Phase.WAITING:
                return self._ask(now)
            case _Phase.FOLLOWING:
                return [*self._lost(LossReason.SILENT), *self._ask(now)]
            case _Phase.LEADING:
                return self._beat(now)

    def receive(self, data: bytes, sender: Address, now: float) -> list[Effect]:
        message = bully_codec.decode(data)
        self._check_peers(sender)
        is_higher = self._outranks(sender, self.name)
        if isinstance(message, Election if is_higher else Answer):
            raise ProtocolError(
                f"{self.name} got {type(message).__name__} from {sender}, which is "
                f"{'higher' if is_higher else 'lower'} here. Give all peers the same priorities."
            )
        self._suspected.discard(sender)
        if isinstance(message, Coordinator):
            return self._announced(message, sender, now)
        self._term_seen = max(self._term_seen, message.term_seen)
        if isinstance(message, Election):
            return self._asked(message, sender, now)
        if self._phase is _Phase.ASKING and message.attempt == self._attempt:
            self._enter(_Phase.WAITING, now + self._settings.coordinator_timeout_s)
        return []

    def unreachable(self, to: Address, now: float) -> list[Effect]:
        """The answer of `to`, if it was asked, is not waited for."""
        if to not in self._unanswered:
            return []
        self._unanswered.discard(to)
        return [] if self._unanswered else self._lead(now)

    def suspect(self, peer: str, now: float) -> list[Effect]:
        self._check_suspect(peer)
        self._suspected.add(peer)
        lost = self._lost(LossReason.SUSPECTED) if peer == self.leader else []
        if lost and self._phase is _Phase.FOLLOWING:
            return [*lost, *self._ask(now)]
        return [*lost, *self.unreachable(peer, now)]

    def _enter(self, phase: _Phase, deadline: float) -> None:
        self._phase, self.next_due = phase, deadline
        self._unanswered.clear()

    def _ask(self, now: float) -> list[Effect]:
        """Hold an election.  The suspected are asked as well, in case they live, but not waited for."""
        self._attempt += 1
        self._enter(_Phase.ASKING, now + self._settings.answer_timeout_s)
        self._unanswered = set(self._higher) - self._suspected
        question = bully_codec.encode(Election(self._attempt, self._term_seen))
        effects: list[Effect] = [SendStream(peer, question) for peer in self._higher]
        return effects if self._unanswered else [*effects, *self._lead(now)]

    def _lead(self, now: float) -> list[Effect]:
        self._term_seen += 1
        self._enter(_Phase.LEADING, now)
        news = bully_codec.encode(Coordinator(self._term_seen))
        announcements = [SendStream(peer, news) for peer in self._lower]
        return [*self._follow(self.name, self._term_seen), *announcements, *self._beat(now)]

    def _beat(self, now: float) -> list[Effect]:
        self.next_due = now + self._settings.heartbeat_interval_s
        beat = bully_codec.encode(Coordinator(self.term))
        return [SendPacket(peer, beat) for peer in self._others]

    def _asked(self, question: Election, sender: str, now: float) -> list[Effect]:
        if self._phase is _Phase.LEADING:
            if self._term_seen > self.term:
                return self._lead(now)  # the sender would take our present term for an old one
            return [SendStream(sender, bully_codec.encode(Coordinator(self.term)))]
        answer = SendStream(sender, bully_codec.encode(Answer(question.attempt, self._term_seen)))
        # A peer that heard its leader just now leaves it to that leader, which was asked as well.
        # Otherwise every question would lead to more of them, and these to more still.
        if self._phase is _Phase.FOLLOWING and now >= self._doubt_at:
            return [answer, *self._ask(now)]
        return [answer]

    def _announced(self, news: Coordinator, sender: str, now: float) -> list[Effect]:
        if self._is_old(sender, news.term):
            return []
        if self._outranks(self.name, sender):
            return self._bully(now)
        self._doubt_at = now + 1.5 * self._settings.heartbeat_interval_s
        self._enter(_Phase.FOLLOWING, now + self._stretched(self._settings.leader_timeout_s))
        return self._follow(sender, news.term)

    def _bully(self, now: float) -> list[Effect]:
        """A lower one leads in a newer term: the highest of us must announce a term newer still."""
        if self._phase in (_Phase.ASKING, _Phase.WAITING):
            return []
        lost = self._lost(LossReason.SUPERSEDED) if self._phase is _Phase.LEADING else []
        return [*lost, *self._ask(now)]
