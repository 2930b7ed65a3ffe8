"""Elections on a ring, in the manner of Chang and Roberts (1979), and the variant that collects.

Every peer talks to its successor only, the next living one in the order of the ring.

Chang-Roberts: whoever begins sends its own candidacy round.  Everyone passes on a candidacy that
outranks it, and puts its own in the place of one that does not, once.  Only the highest comes home.

Collecting: whoever begins sends a list round, and everyone who lives adds itself.  When the list is
back, its highest is announced.

Added to the papers, since peers die and tokens get lost: dead successors are skipped; an election that
leads to nothing is begun again; a token without a living owner ends by its count of hops; the leader
sends its announcement round again and again, which is its heartbeat; announcements carry a term.

Invariants
    * No announcement that is older than the newest accepted one changes anything or is passed on.
    * No token passes a peer twice, or makes more hops than there are peers.
    * A peer never follows one that it outranks.
    * What is kept is bounded by the number of peers.
"""

from __future__ import annotations

import enum
import math
import random
from collections import deque
from collections.abc import Mapping, Sequence
from typing import ClassVar, assert_never

import msgspec

from quoracy.errors import InvalidRequest, ProtocolError
from quoracy.membership.elections.interface import Assumptions, LossReason
from quoracy.membership.elections.messages import (
    Alive,
    Announcement,
    Candidacy,
    Collection,
    Hello,
    HopAck,
    RingMessage,
    Token,
    ring_codec,
)
from quoracy.membership.elections.peers import Peers, Rank
from quoracy.membership.elections.ring_link import RingLink
from quoracy.membership.elections.view import LeaderView, Seen
from quoracy.membership.machine import Address, Effect, SendPacket, SendStream

__all__ = ["COLLECTING_ASSUMPTIONS", "RING_ASSUMPTIONS", "CollectingRing", "Ring", "RingSettings"]

_ASSUMES = (
    (
        "Every peer knows all peers, their order on the ring and their priorities, and these do not "
        "change."
    ),
    "A successor that does not acknowledge in time, or cannot be reached, has failed.",
    "A token gets round within the timeouts (a synchronous network).",
)
_TWO_LEADERS = (
    "Whenever a peer is slower than a timeout and is skipped, and for as long as a partition lasts: "
    "each side closes to a ring with its own leader. Two leaders can even have the same term."
)
_MAY = "Spread work, choose who talks to the outside, avoid doing the same thing twice."
_MAY_NOT = "Protect anything that two must never do at once, or use its term as a fencing token."

RING_ASSUMPTIONS = Assumptions(
    algorithm="Ring (Chang-Roberts)",
    assumes=_ASSUMES,
    two_leaders=_TWO_LEADERS,
    messages=(
        "From 2n to about n²/2 hops for an election among n peers, about n ln n on average when all "
        "begin; n hops per heartbeat interval. Each hop is acknowledged."
    ),
    may=_MAY,
    may_not=_MAY_NOT,
)
COLLECTING_ASSUMPTIONS = Assumptions(
    algorithm="Ring (collecting)",
    assumes=_ASSUMES,
    two_leaders=_TWO_LEADERS,
    messages=(
        "At most 2n hops for each peer that begins, so 2n² if all do, and a token holds up to n names; "
        "n hops per heartbeat interval. Each hop is acknowledged."
    ),
    may=_MAY,
    may_not=_MAY_NOT,
)

# How many tokens of one origin are remembered, so that none passes twice.  An origin has one election
# and a few announcements on their way at a time; an older one ends by its count of hops.
_NONCES_MAX = 16


class RingSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How long a peer waits.  All peers should have the same.

    hop_timeout_s: more than a round trip takes; a successor that does not acknowledge in it is skipped.
    heartbeat_interval_s: how often the leader's announcement goes round, and the skipped are asked.
    election_timeout_s: more than a round with a few dead successors takes; then the election begins
    again. leader_timeout_s: a leader that is silent for so long is lost.  Both are stretched by up to a
    fifth at random, so that not everyone begins at once.
    """

    hop_timeout_s: float = 0.5
    heartbeat_interval_s: float = 1.0
    election_timeout_s: float = 4.0
    leader_timeout_s: float = 5.0

    def __post_init__(self) -> None:
        for field in self.__struct_fields__:
            if not 0 < getattr(self, field) < math.inf:
                raise InvalidRequest(f"{field} must be more than 0, not {getattr(self, field)}")
        if self.election_timeout_s < 2 * self.hop_timeout_s:
            raise InvalidRequest(
                f"election_timeout_s ({self.election_timeout_s}) must be at least twice hop_timeout_s "
                f"({self.hop_timeout_s}): one dead successor must not end an election"
            )
        if self.leader_timeout_s < 2 * self.heartbeat_interval_s:
            raise InvalidRequest(
                f"leader_timeout_s ({self.leader_timeout_s}) must be at least twice "
                f"heartbeat_interval_s ({self.heartbeat_interval_s}): one lost heartbeat is no failure"
            )


class _Variant(enum.Enum):
    CHANG_ROBERTS = enum.auto()
    COLLECTING = enum.auto()


class Ring(Seen):
    """One peer of an election on a ring, in the manner of Chang and Roberts.

    ring: all peers in the order of the ring, the last before the first.
    priorities: who outranks whom; equal ones, and those not listed (0), are ordered by name.
    term: the newest term known from an earlier life, if the caller kept it.

    >>> ring = Ring("a", ["a", "c", "b"], rng=random.Random(1))
    >>> [sent.to for sent in ring.start(now=0.0)]
    ['c']
    >>> _ = ring.unreachable("c", now=0.1)
    >>> _ = ring.unreachable("b", now=0.1)  # so it is alone
    >>> ring.leader, ring.term
    ('a', 1)
    """

    assumptions: ClassVar[Assumptions] = RING_ASSUMPTIONS
    _variant: ClassVar[_Variant] = _Variant.CHANG_ROBERTS

    def __init__(
        self,
        name: str,
        ring: Sequence[str],
        *,
        rng: random.Random,
        priorities: Mapping[str, int] | None = None,
        settings: RingSettings | None = None,
        term: int = 0,
    ) -> None:
        self.next_due = math.inf
        self._peers = Peers(name, ring, priorities=priorities)
        self._rng = rng
        self._settings = settings or RingSettings()
        self._link = RingLink(
            name,
            self._peers.all,
            hop_timeout_s=self._settings.hop_timeout_s,
            hello_interval_s=self._settings.heartbeat_interval_s,
        )
        self._view = LeaderView(term)
        self._newest: tuple[int, Rank] = (term, (-1 << 63, ""))  # the newest announcement accepted
        self._term_seen = term
        self._nonces: dict[str, deque[int]] = {}  # of the tokens that passed, by origin
        self._my_election: int | None = None  # the nonce of the token of ours that may come home
        self._election_due = math.inf  # while an election runs: when it is begun again
        self._leader_due = (
            math.inf
        )  # when the leader is lost; if we lead, when our heartbeat is overdue
        self._beat_due = math.inf
        self._beat_at = -math.inf

    @property
    def skipped(self) -> frozenset[str]:
        """The peers that this one takes for dead."""
        return self._link.skipped

    def start(self, now: float) -> list[Effect]:
        """Begin with an election."""
        return self._done(self._begin(now), now)

    def tick(self, now: float) -> list[Effect]:
        """Do what is due: skip the silent, miss a leader, begin again, send heartbeats."""
        if now < self.next_due:
            return []
        effects = self._link.tick(now)
        if self._leader_due <= now:
            # A leader whose heartbeat does not come home goes on leading: it may be lost, or
            # superseded.
            if not self.is_leader:
                effects += self._view.lost(LossReason.SILENT)
            self._leader_due = math.inf
            effects += self._begin(now)
        elif self._election_due <= now:
            effects += self._begin(now)
        if self._beat_due <= now:
            effects += self._beat(now)
        return self._done(effects, now)

    def receive(self, data: bytes, sender: Address, now: float) -> list[Effect]:
        """A message from another peer.  Raises `ProtocolError` if it makes no sense."""
        message = ring_codec.decode(data)
        self._check(message, sender)
        match message:
            case HopAck():
                self._link.acknowledged(message, sender)
                effects: list[Effect] = []
            case Hello():
                effects = [SendPacket(sender, ring_codec.encode(Alive()))]
            case Alive():
                self._link.trust(sender)
                effects = []
            case Candidacy() | Collection() | Announcement():
                effects = [SendStream(sender, ring_codec.encode(HopAck(message.hop)))]
                if message.origin == self.name or self._is_new(message):
                    effects += self._passes(message, now)
            case _:
                assert_never(message)
        return self._done(effects, now)

    def receive_stream(self, data: bytes, sender: Address, now: float) -> list[Effect]:
        """The same messages, however they come."""
        return self.receive(data, sender, now)

    def unreachable(self, to: Address, now: float) -> list[Effect]:
        """A peer that cannot be reached is skipped until it answers."""
        return self._done(self._link.skip(to, now) if to in self._peers.others else [], now)

    def suspect(self, peer: str, now: float) -> list[Effect]:
        """A failure detector thinks that the peer failed; it is skipped until it answers.

        >>> ring = Ring("a", ["a", "b"], rng=random.Random(1))
        >>> _ = ring.start(now=0.0)
        >>> _ = ring.suspect("b", now=0.0)
        >>> ring.leader
        'a'
        """
        if peer not in self._peers.others:
            raise InvalidRequest(f"{peer!r} is not one of the other peers of {self.name!r}")
        effects = self._link.skip(peer, now)
        if peer == self._view.leader:
            self._leader_due = math.inf
            effects += [*self._view.lost(LossReason.SUSPECTED), *self._begin(now)]
        return self._done(effects, now)

    # --- tokens

    def _passes(self, token: Token, now: float) -> list[Effect]:
        """A token is here for the first time, or is home."""
        match token:
            case Candidacy():
                self._term_seen = max(self._term_seen, token.term_seen)
                return self._candidacy(token, now)
            case Collection():
                self._term_seen = max(self._term_seen, token.term_seen)
                return self._collection(token, now)
            case Announcement():
                self._term_seen = max(self._term_seen, token.term)
                return self._announcement(token, now)
            case _:
                assert_never(token)

    def _candidacy(self, token: Candidacy, now: float) -> list[Effect]:
        if token.origin == self.name:
            if token.nonce != self._my_election:
                return []  # of an election that is over
            return self._announce(self.name, now)
        self._link.trust(token.origin)  # or its own candidacy would pass it by
        if self._peers.outranks(token.origin, self.name):
            self._await_outcome(now)
            if token.hops >= len(self._peers.all):
                return []  # its owner is gone
            onwards = msgspec.structs.replace(token, hops=token.hops + 1, term_seen=self._term_seen)
            return self._link.send(onwards, now)
        if self._can_calm_down():
            self._beat_soon(now)
            return []
        return [] if self._election_due < math.inf else self._begin(now)

    def _collection(self, token: Collection, now: float) -> list[Effect]:
        for peer in token.peers:
            self._link.trust(peer)
        if token.origin == self.name:
            if token.nonce != self._my_election:
                return []
            return self._announce(max(token.peers, key=self._peers.rank), now)
        if self.name in token.peers:
            return []  # was here, and its owner is gone
        highest = max(token.peers, key=self._peers.rank)
        if self._peers.outranks(self.name, highest) and self._can_calm_down():
            self._beat_soon(now)
            return []
        self._await_outcome(now)
        peers = (*token.peers, self.name)
        return self._link.send(
            msgspec.structs.replace(token, peers=peers, term_seen=self._term_seen), now
        )

    def _announcement(self, token: Announcement, now: float) -> list[Effect]:
        announced = (token.term, self._peers.rank(token.leader))
        if announced < self._newest:
            return []
        is_home = token.origin == self.name
        onwards: list[Effect] = []
        if not is_home and token.hops < len(self._peers.all):
            onwards = self._link.send(msgspec.structs.replace(token, hops=token.hops + 1), now)
        if self._peers.outranks(self.name, token.leader):
            return onwards if is_home else [*onwards, *self._object(now)]
        return [*onwards, *self._accept(token.leader, token.term, now)]

    # --- leading and following

    def _begin(self, now: float) -> list[Effect]:
        """Hold an election of our own, in the place of any that runs."""
        nonce = self._rng.getrandbits(62)
        self._my_election = nonce
        self._await_outcome(now)
        token: Token
        match self._variant:
            case _Variant.CHANG_ROBERTS:
                token = Candidacy(0, self.name, nonce, 1, self._term_seen)
            case _Variant.COLLECTING:
                token = Collection(0, self.name, nonce, (self.name,), self._term_seen)
            case _:
                assert_never(self._variant)
        return self._link.send(token, now)

    def _await_outcome(self, now: float) -> None:
        if self._election_due == math.inf or self._election_due <= now:
            self._election_due = now + self._settings.election_timeout_s * self._rng.uniform(1.0, 1.2)

    def _announce(self, leader: str, now: float) -> list[Effect]:
        """Our election found the leader."""
        self._term_seen += 1
        effects = self._accept(leader, self._term_seen, now)
        if leader != self.name:
            effects += self._send_round(leader, now)
        return effects

    def _accept(self, leader: str, term: int, now: float) -> list[Effect]:
        self._newest = (term, self._peers.rank(leader))
        self._my_election = None
        self._election_due = math.inf
        self._leader_due = now + self._settings.leader_timeout_s * self._rng.uniform(1.0, 1.2)
        effects = self._view.elected(leader, term)
        if leader != self.name:
            self._beat_due = math.inf
        elif effects:
            effects += self._beat(now)
        return effects

    def _object(self, now: float) -> list[Effect]:
        """A lower one leads in a newer term, so somebody does not know of us."""
        if self._election_due < math.inf:
            return []
        lost = self._view.lost(LossReason.SUPERSEDED) if self.is_leader else []
        self._beat_due = math.inf
        self._leader_due = math.inf
        return [*lost, *self._begin(now)]

    def _can_calm_down(self) -> bool:
        """Whether we lead, and whoever holds the election needs only hear from us."""
        return self.is_leader and self._election_due == math.inf and self._term_seen == self.term

    def _beat_soon(self, now: float) -> None:
        # Not at once for everyone who asks: a crowd of newcomers is answered by one round.
        self._beat_due = min(self._beat_due, max(now, self._beat_at + self._settings.hop_timeout_s))

    def _beat(self, now: float) -> list[Effect]:
        self._beat_at = now
        self._beat_due = now + self._settings.heartbeat_interval_s
        return self._send_round(self.name, now)

    def _send_round(self, leader: str, now: float) -> list[Effect]:
        nonce = self._rng.getrandbits(62)
        return self._link.send(Announcement(0, self.name, nonce, 1, leader, self._view.term), now)

    # --- what came from outside

    def _is_new(self, token: Token) -> bool:
        nonces = self._nonces.setdefault(token.origin, deque(maxlen=_NONCES_MAX))
        if token.nonce in nonces:
            return False
        nonces.append(token.nonce)
        return True

    def _check(self, message: RingMessage, sender: str) -> None:
        self._peers.check_sender(sender)
        match message:
            case Candidacy():
                self._check_variant(_Variant.CHANG_ROBERTS, sender)
                self._peers.check_known(message.origin)
            case Collection():
                self._check_variant(_Variant.COLLECTING, sender)
                for peer in message.peers:
                    self._peers.check_known(peer)
                if message.peers[0] != message.origin or len(set(message.peers)) != len(message.peers):
                    raise ProtocolError(
                        f"{self.name} got a collection from {sender} in which {message.origin} is not "
                        "the first, or a peer comes twice"
                    )
            case Announcement():
                self._peers.check_known(message.origin)
                self._peers.check_known(message.leader)

    def _check_variant(self, variant: _Variant, sender: str) -> None:
        if variant is not self._variant:
            raise ProtocolError(
                f"{self.name} got a token of the other variant from {sender}. Let all peers be Ring, "
                "or all CollectingRing."
            )

    def _done(self, effects: list[Effect], now: float) -> list[Effect]:
        # Alone, a peer is its own successor.  Only its own tokens are of use then, and each of them
        # leads to one more at most: an election to an announcement.
        while returned := self._link.take_returned():
            for token in returned:
                if token.origin == self.name:
                    effects += self._passes(token, now)
        self.next_due = min(self._link.next_due, self._election_due, self._leader_due, self._beat_due)
        return effects


class CollectingRing(Ring):
    """One peer of an election on a ring, in which a list of all who live goes round.

    >>> ring = CollectingRing("a", ["a", "c", "b"], rng=random.Random(1))
    >>> [sent.to for sent in ring.start(now=0.0)]
    ['c']
    """

    assumptions: ClassVar[Assumptions] = COLLECTING_ASSUMPTIONS
    _variant: ClassVar[_Variant] = _Variant.COLLECTING
