"""Elections on a ring, in the manner of Chang and Roberts (1979), and the variant that collects.

Every peer talks to its successor only, the next living one in the order of the ring.

Chang-Roberts: the peer that begins sends its own candidacy round.  Each peer passes on a candidacy that
outranks it, and puts its own in the place of one that does not, once.  Only the highest comes home.

Collecting: the peer that begins sends a list round, and everyone who lives adds itself.  When the list
is back, its highest is announced.

Added to the papers, since peers die and tokens get lost: dead successors are skipped; an election that
leads to nothing is begun again; a token without a living owner ends by its count of hops; the leader
sends its announcement round again and again, which is its heartbeat; announcements carry a term.

Invariants
    * Those of every `RankedElector`; no old announcement is passed on.
    * No token passes a peer twice, or makes more hops than there are peers.
    * What is kept is bounded by the number of peers.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Mapping, Sequence
from typing import ClassVar, assert_never

import msgspec

from quoracy.errors import ProtocolError
from quoracy.membership.elections.elector import (
    Assumptions,
    LossReason,
    RankedElector,
    RankedSettings,
    require,
)
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
from quoracy.membership.machine import Address, Effect, SendPacket, SendStream

__all__ = ["HOPS_WAITING_MAX", "CollectingRing", "Ring", "RingLink", "RingSettings"]

HOPS_WAITING_MAX = 256
# How many tokens of one origin are remembered, so that none passes twice.  An origin has one election
# and a few announcements on their way at a time; an older one ends by its count of hops.
_NONCES_MAX = 16

_ASSUMPTIONS = Assumptions(
    algorithm="Ring (Chang-Roberts)",
    assumes=(
        (
            "Every peer knows all peers, their order on the ring and their priorities, and these do "
            "not change."
        ),
        "A successor that does not acknowledge in time, or cannot be reached, has failed.",
        "A token gets round within the timeouts (a synchronous network).",
    ),
    two_leaders="Whenever a peer is slower than a timeout and is skipped, and for as long as a "
    "partition lasts: each side closes to a ring with its own leader. Two leaders can even have the "
    "same term.",
    messages="From 2n to about n²/2 hops for an election among n peers, about n ln n on average when "
    "all begin; n hops per heartbeat interval. Each hop is acknowledged.",
    may="Spread work, choose who talks to the outside, avoid doing the same thing twice.",
    may_not="Protect anything that two must never do at once, or use its term as a fencing token.",
)


class RingSettings(RankedSettings, frozen=True, kw_only=True):
    """How long a peer waits.  All peers should have the same.

    hop_timeout_s: more than a round trip takes; a successor that does not acknowledge in it is skipped.
    heartbeat_interval_s: how often the leader's announcement goes round, and the skipped are asked.
    election_timeout_s: more than a round with a few dead successors takes; then the election begins
    again.  leader_timeout_s: a leader that is silent for so long is lost.  Both are stretched by up to
    a fifth at random, so that not everyone begins at once.
    """

    hop_timeout_s: float = 0.5
    election_timeout_s: float = 4.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.election_timeout_s >= 2 * self.hop_timeout_s,
            f"election_timeout_s ({self.election_timeout_s}) must be at least twice hop_timeout_s "
            f"({self.hop_timeout_s}): one dead successor must not end an election",
        )


class _Hop(msgspec.Struct, frozen=True):
    to: str
    token: Token
    deadline: float


class RingLink:
    """The way to the next living peer of a ring.

    A token goes to the successor and must be acknowledged.  A successor that does not acknowledge in
    time, or cannot be reached, is skipped: the token goes on to the one after it.  Those that are
    skipped are asked from time to time whether they are back.

    Invariants
        * At most `HOPS_WAITING_MAX` tokens wait for an acknowledgement; beyond that the oldest is taken
          for acknowledged.  If it was not, the peer that began it begins again.
        * A token that nobody else can take comes back to the caller.

    >>> link = RingLink("b", ["a", "b", "c"], hop_timeout_s=0.5, hello_interval_s=1.0)
    >>> [sent.to for sent in link.send(Candidacy(0, "b", 1, 1, 0), now=0.0)]
    ['c']
    >>> [sent.to for sent in link.tick(now=0.5)]  # c was silent
    ['a']
    """

    def __init__(
        self, name: str, ring: Sequence[str], *, hop_timeout_s: float, hello_interval_s: float
    ) -> None:
        at = ring.index(name)
        self._after = (*ring[at + 1 :], *ring[:at])
        self._hop_timeout_s, self._hello_interval_s = hop_timeout_s, hello_interval_s
        self._hop = 0
        self._hops: dict[int, _Hop] = {}
        self.skipped: set[str] = set()  # those that are taken for dead here
        self._hello_due = math.inf
        self._returned: list[Token] = []

    @property
    def next_due(self) -> float:
        return min([self._hello_due, *(hop.deadline for hop in self._hops.values())])

    def send(self, token: Token, now: float) -> list[Effect]:
        """Pass the token on, to the first that is not skipped."""
        to = next((peer for peer in self._after if peer not in self.skipped), None)
        if to is None:
            self._returned.append(token)
            return []
        self._hop += 1
        while len(self._hops) >= HOPS_WAITING_MAX:
            del self._hops[next(iter(self._hops))]
        self._hops[self._hop] = _Hop(to, token, now + self._hop_timeout_s)
        return [SendStream(to, ring_codec.encode(msgspec.structs.replace(token, hop=self._hop)))]

    def take_returned(self) -> list[Token]:
        """The tokens that nobody else can take: this peer is alone, as far as it knows."""
        returned, self._returned = self._returned, []
        return returned

    def acknowledged(self, ack: HopAck, sender: str) -> None:
        hop = self._hops.get(ack.hop)
        if hop is not None and hop.to == sender:
            del self._hops[ack.hop]
            self.trust(sender)

    def skip(self, peer: str, now: float) -> list[Effect]:
        """The peer is dead for now: whatever waits for it goes to the next."""
        if peer not in self.skipped:
            self.skipped.add(peer)
            self._hello_due = min(self._hello_due, now + self._hello_interval_s)
        waiting = [number for number, hop in self._hops.items() if hop.to == peer]
        tokens = [self._hops.pop(number).token for number in waiting]
        return [effect for token in tokens for effect in self.send(token, now)]

    def trust(self, peer: str) -> None:
        """The peer lives: the next token may go to it again."""
        self.skipped.discard(peer)
        if not self.skipped:
            self._hello_due = math.inf

    def tick(self, now: float) -> list[Effect]:
        """Skip those that did not acknowledge in time; ask the skipped whether they are back."""
        effects: list[Effect] = []
        for peer in {hop.to: None for hop in self._hops.values() if hop.deadline <= now}:
            effects += self.skip(peer, now)
        if self._hello_due <= now:
            hello = ring_codec.encode(Hello())
            effects += [SendPacket(peer, hello) for peer in self._after if peer in self.skipped]
            self._hello_due = now + self._hello_interval_s if self.skipped else math.inf
        return effects


class Ring(RankedElector):
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

    assumptions = _ASSUMPTIONS
    _other_variant: ClassVar[type[Token]] = Collection

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
        super().__init__(name, ring, priorities, rng, term)
        self._settings = settings or RingSettings()
        self._link = RingLink(
            name,
            self._peers,
            hop_timeout_s=self._settings.hop_timeout_s,
            hello_interval_s=self._settings.heartbeat_interval_s,
        )
        self._nonces: dict[str, deque[int]] = {}  # of the tokens that passed, by origin
        self._my_election: int | None = None  # the nonce of the token of ours that may come home
        self._election_due = math.inf  # while an election runs: when it is begun again
        self._leader_due = math.inf  # when the leader is lost, or our own heartbeat is overdue
        self._beat_due = math.inf
        self._beat_at = -math.inf

    @property
    def skipped(self) -> frozenset[str]:
        """The peers that this one takes for dead."""
        return frozenset(self._link.skipped)

    def start(self, now: float) -> list[Effect]:
        return self._done(self._begin(now), now)

    def tick(self, now: float) -> list[Effect]:
        if now < self.next_due:
            return []
        effects = self._link.tick(now)
        if self._leader_due <= now:
            # A leader whose heartbeat does not come home goes on leading: the token may be lost, or
            # superseded.
            if not self.is_leader:
                effects += self._lost(LossReason.SILENT)
            self._leader_due = math.inf
            effects += self._begin(now)
        elif self._election_due <= now:
            effects += self._begin(now)
        if self._beat_due <= now:
            effects += self._beat(now)
        return self._done(effects, now)

    def receive(self, data: bytes, sender: Address, now: float) -> list[Effect]:
        message = ring_codec.decode(data)
        self._check(message, sender)
        effects: list[Effect] = []
        match message:
            case HopAck():
                self._link.acknowledged(message, sender)
            case Hello():
                effects = [SendPacket(sender, ring_codec.encode(Alive()))]
            case Alive():
                self._link.trust(sender)
            case Candidacy() | Collection() | Announcement():
                effects = [SendStream(sender, ring_codec.encode(HopAck(message.hop)))]
                if message.origin == self.name or self._is_new(message):
                    effects += self._take(message, now)
            case _:
                assert_never(message)
        return self._done(effects, now)

    def unreachable(self, to: Address, now: float) -> list[Effect]:
        """The peer is skipped until it answers."""
        return self._done(self._link.skip(to, now) if to in self._others else [], now)

    def suspect(self, peer: str, now: float) -> list[Effect]:
        self._check_suspect(peer)
        effects = self._link.skip(peer, now)
        if peer == self.leader:
            self._leader_due = math.inf
            effects += [*self._lost(LossReason.SUSPECTED), *self._begin(now)]
        return self._done(effects, now)

    def _done(self, effects: list[Effect], now: float) -> list[Effect]:
        # Alone, a peer is its own successor.  Only its own tokens are of use then, and each of them
        # leads to one more at most: an election to an announcement.
        while returned := self._link.take_returned():
            for token in returned:
                if token.origin == self.name:
                    effects += self._take(token, now)
        self.next_due = min(self._link.next_due, self._election_due, self._leader_due, self._beat_due)
        return effects

    # -- tokens --------------------------------------------------------------------------------------

    def _take(self, token: Token, now: float) -> list[Effect]:
        """Act on a token that is here for the first time, or is home."""
        if isinstance(token, Announcement):
            return self._announced(token, now)
        self._term_seen = max(self._term_seen, token.term_seen)
        named = token.peers if isinstance(token, Collection) else (token.origin,)
        for peer in named:
            self._link.trust(peer)  # or its own token would pass it by
        highest = max(named, key=self._rank)
        if token.origin == self.name:  # and perhaps of an election that is over
            return self._announce(highest, now) if token.nonce == self._my_election else []
        if self.name in named:
            return []  # a list that was here before: its owner is gone
        if self._outranks(self.name, highest):
            # A leader that nobody challenges need only be heard by the peer that holds the election.
            is_running = self._election_due < math.inf
            if self.is_leader and not is_running and self._term_seen == self.term:
                # Not at once for everyone who asks: a crowd of newcomers is answered by one round.
                soon = max(now, self._beat_at + self._settings.hop_timeout_s)
                self._beat_due = min(self._beat_due, soon)
                return []
            if isinstance(token, Candidacy):
                return [] if is_running else self._begin(now)
        self._await_outcome(now)
        if isinstance(token, Collection):
            onwards: Token = msgspec.structs.replace(
                token, peers=(*named, self.name), term_seen=self._term_seen
            )
        elif token.hops < len(self._peers):
            onwards = msgspec.structs.replace(token, hops=token.hops + 1, term_seen=self._term_seen)
        else:
            return []  # its owner is gone
        return self._link.send(onwards, now)

    def _announced(self, token: Announcement, now: float) -> list[Effect]:
        if self._is_old(token.leader, token.term):
            return []
        is_home = token.origin == self.name
        onwards: list[Effect] = []
        if not is_home and token.hops < len(self._peers):
            onwards = self._link.send(msgspec.structs.replace(token, hops=token.hops + 1), now)
        if not self._outranks(self.name, token.leader):
            return [*onwards, *self._accept(token.leader, token.term, now)]
        return onwards if is_home else [*onwards, *self._object(now)]

    def _is_new(self, token: Token) -> bool:
        nonces = self._nonces.setdefault(token.origin, deque(maxlen=_NONCES_MAX))
        if token.nonce in nonces:
            return False
        nonces.append(token.nonce)
        return True

    def _check(self, message: RingMessage, sender: str) -> None:
        self._check_peers(sender)
        if isinstance(message, self._other_variant):
            raise ProtocolError(
                f"{self.name} got a token of the other variant from {sender}. Let all peers be Ring, "
                "or all CollectingRing."
            )
        match message:
            case Candidacy():
                self._check_peers(sender, message.origin)
            case Announcement():
                self._check_peers(sender, message.origin, message.leader)
            case Collection(peers=peers):
                self._check_peers(sender, *peers)
                if peers[0] != message.origin or len(set(peers)) != len(peers):
                    raise ProtocolError(
                        f"{self.name} got a collection from {sender} in which {message.origin} is not "
                        "the first, or a peer comes twice"
                    )

    # -- leading and following -----------------------------------------------------------------------

    def _begin(self, now: float) -> list[Effect]:
        """Hold an election of our own, in the place of any that runs."""
        self._my_election = self._rng.getrandbits(62)
        self._await_outcome(now)
        return self._link.send(self._own_token(self._my_election), now)

    def _own_token(self, nonce: int) -> Token:
        return Candidacy(0, self.name, nonce, 1, self._term_seen)

    def _await_outcome(self, now: float) -> None:
        if self._election_due == math.inf or self._election_due <= now:
            self._election_due = now + self._stretched(self._settings.election_timeout_s)

    def _announce(self, leader: str, now: float) -> list[Effect]:
        """Our election found the leader."""
        self._term_seen += 1
        effects = self._accept(leader, self._term_seen, now)
        return effects if leader == self.name else [*effects, *self._send_round(leader, now)]

    def _accept(self, leader: str, term: int, now: float) -> list[Effect]:
        self._my_election = None
        self._election_due = math.inf
        self._leader_due = now + self._stretched(self._settings.leader_timeout_s)
        effects = self._follow(leader, term)
        if leader != self.name:
            self._beat_due = math.inf
        elif effects:
            effects += self._beat(now)
        return effects

    def _object(self, now: float) -> list[Effect]:
        """A lower one leads in a newer term, so some participant does not know about us."""
        if self._election_due < math.inf:
            return []
        lost = self._lost(LossReason.SUPERSEDED) if self.is_leader else []
        self._beat_due = self._leader_due = math.inf
        return [*lost, *self._begin(now)]

    def _beat(self, now: float) -> list[Effect]:
        self._beat_at = now
        self._beat_due = now + self._settings.heartbeat_interval_s
        return self._send_round(self.name, now)

    def _send_round(self, leader: str, now: float) -> list[Effect]:
        nonce = self._rng.getrandbits(62)
        return self._link.send(Announcement(0, self.name, nonce, 1, leader, self.term), now)


class CollectingRing(Ring):
    """One peer of an election on a ring, in which a list of all who live goes round.

    >>> ring = CollectingRing("a", ["a", "c", "b"], rng=random.Random(1))
    >>> [sent.to for sent in ring.start(now=0.0)]
    ['c']
    """

    assumptions = msgspec.structs.replace(
        _ASSUMPTIONS,
        algorithm="Ring (collecting)",
        messages="At most 2n hops for each peer that begins, so 2n² if all do, and a token holds up to "
        "n names; n hops per heartbeat interval. Each hop is acknowledged.",
    )
    _other_variant = Candidacy

    def _own_token(self, nonce: int) -> Token:
        return Collection(0, self.name, nonce, (self.name,), self._term_seen)
