"""The way to the next living peer of a ring.

A token goes to the successor and must be acknowledged.  A successor that does not acknowledge in time,
or cannot be reached, is skipped: the token goes on to the one after it.  Those who are skipped are
asked from time to time whether they are back.

Invariants
    * At most `HOPS_WAITING_MAX` tokens wait for an acknowledgement; beyond that the oldest is taken for
      acknowledged.  If it was not, whoever began it begins again.
    * A token that nobody else can take comes back to the caller.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from quoracy.membership.elections.messages import Hello, HopAck, Token, ring_codec
from quoracy.membership.machine import Effect, SendPacket, SendStream

__all__ = ["HOPS_WAITING_MAX", "RingLink"]

HOPS_WAITING_MAX = 256


class _Hop(msgspec.Struct, frozen=True):
    to: str
    token: Token
    deadline: float


class RingLink:
    """Sends tokens onwards from one peer.

    >>> from quoracy.membership.elections.messages import Candidacy
    >>> link = RingLink("b", ["a", "b", "c"], hop_timeout_s=0.5, hello_interval_s=1.0)
    >>> [sent.to for sent in link.send(Candidacy(0, "b", 1, 1, 0), now=0.0)]
    ['c']
    >>> [sent.to for sent in link.tick(now=0.5)]  # c was silent
    ['a']
    """

    __slots__ = ("_after", "_hello_due", "_hello_interval_s", "_hop", "_hop_timeout_s", "_hops",
                 "_returned", "_skipped")  # fmt: skip

    def __init__(
        self, name: str, ring: Sequence[str], *, hop_timeout_s: float, hello_interval_s: float
    ) -> None:
        at = ring.index(name)
        self._after = (*ring[at + 1 :], *ring[:at])
        self._hop_timeout_s = hop_timeout_s
        self._hello_interval_s = hello_interval_s
        self._hop = 0
        self._hops: dict[int, _Hop] = {}
        self._skipped: set[str] = set()
        self._hello_due = math.inf
        self._returned: list[Token] = []

    @property
    def skipped(self) -> frozenset[str]:
        """Those that are taken for dead here."""
        return frozenset(self._skipped)

    @property
    def next_due(self) -> float:
        deadlines = min((hop.deadline for hop in self._hops.values()), default=math.inf)
        return min(deadlines, self._hello_due)

    def send(self, token: Token, now: float) -> list[Effect]:
        """Pass the token on, to the first that is not skipped."""
        to = next((peer for peer in self._after if peer not in self._skipped), None)
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
        if peer not in self._skipped:
            self._skipped.add(peer)
            self._hello_due = min(self._hello_due, now + self._hello_interval_s)
        waiting = [number for number, hop in self._hops.items() if hop.to == peer]
        tokens = [self._hops.pop(number).token for number in waiting]
        return [effect for token in tokens for effect in self.send(token, now)]

    def trust(self, peer: str) -> None:
        """The peer lives: the next token may go to it again."""
        self._skipped.discard(peer)
        if not self._skipped:
            self._hello_due = math.inf

    def tick(self, now: float) -> list[Effect]:
        """Skip whoever did not acknowledge in time; ask the skipped whether they are back."""
        effects: list[Effect] = []
        late = {hop.to: None for hop in self._hops.values() if hop.deadline <= now}
        for peer in late:
            effects += self.skip(peer, now)
        if self._hello_due <= now:
            hello = ring_codec.encode(Hello())
            effects += [SendPacket(peer, hello) for peer in self._after if peer in self._skipped]
            self._hello_due = now + self._hello_interval_s if self._skipped else math.inf
        return effects
