"""What waits to be sent: the effects of one call, and the news that rides on packets.

News is sent a limited number of times.  What was sent least goes first, so that new news spreads at
once and old news fills what room is left.  News of a member replaces older news of the same one.  What
members are comes before what users broadcast.

Invariants
    * A packet never exceeds its room, and a piece is never sent more than `transmits_max` times.
    * At most `pieces_max` are kept; beyond that the one that was sent most often gives way: most
      others know it already.
"""

from __future__ import annotations

from quoracy.membership.machine import Address, Effect, SendPacket, SendStream, Tell
from quoracy.membership.model import SwimEvent

__all__ = ["Broadcasts", "Outbox"]


class Outbox:
    """Effects of one call.

    >>> out = Outbox()
    >>> out.packet("h:1", b"ping")
    >>> len(out.take()), len(out.take())
    (1, 0)
    """

    __slots__ = ("_effects",)

    def __init__(self) -> None:
        self._effects: list[Effect] = []

    def packet(self, to: Address, data: bytes) -> None:
        self._effects.append(SendPacket(to, data))

    def stream(self, to: Address, data: bytes) -> None:
        self._effects.append(SendStream(to, data))

    def tell(self, event: SwimEvent) -> None:
        self._effects.append(Tell(event))

    def take(self) -> list[Effect]:
        effects = self._effects
        self._effects = []  # a new list even if it was empty: the caller may add to the old one
        return effects


class Broadcasts:
    """The news of one member.

    >>> news = Broadcasts(pieces_max=10)
    >>> news.put("a", b"a is alive")
    >>> news.put("a", b"a is dead")
    >>> news.take(room=100, transmits_max=2), news.take(room=100, transmits_max=2)
    ([b'a is dead'], [b'a is dead'])
    >>> news.take(room=100, transmits_max=2)
    []
    """

    __slots__ = ("_lengths", "_pieces_max", "_tier_of", "_tiers", "dropped_count")

    def __init__(self, pieces_max: int) -> None:
        self._pieces_max = pieces_max
        # Subject -> how often it was sent; and for each such number, subject -> piece, oldest first.
        self._tier_of: dict[str, int] = {}
        self._tiers: list[dict[str, bytes]] = []
        # How many pieces have each length: with less room than the shortest, none is looked at.
        self._lengths: dict[int, int] = {}
        self.dropped_count = 0

    def __len__(self) -> int:
        return len(self._tier_of)

    def __contains__(self, subject: str) -> bool:
        return subject in self._tier_of

    def put(self, subject: str, piece: bytes) -> None:
        """Send this from now on, instead of anything older on the same subject."""
        self.drop(subject)
        if len(self._tier_of) >= self._pieces_max:
            self._drop_most_sent()
        if not self._tiers:
            self._tiers.append({})
        self._tiers[0][subject] = piece
        self._tier_of[subject] = 0
        self._lengths[len(piece)] = self._lengths.get(len(piece), 0) + 1

    def drop(self, subject: str) -> None:
        """Send nothing on this subject any more."""
        tier = self._tier_of.pop(subject, None)
        if tier is not None:
            self._forget_length(len(self._tiers[tier].pop(subject)))

    def take(self, *, room: int, transmits_max: int) -> list[bytes]:
        """Pieces for one packet; they count as sent."""
        if not self._tier_of:
            return []
        pieces: list[bytes] = []
        shortest = min(self._lengths)
        sent: dict[str, bytes] = {}  # from the tier before
        for number, tier in enumerate(self._tiers):
            before, sent = sent, _newest(tier, room, shortest)
            tier.update(before)
            for piece in sent.values():
                room -= len(piece)
            pieces += sent.values()
            if number + 1 < transmits_max:
                self._tier_of.update(dict.fromkeys(sent, number + 1))
            else:
                self._forget(sent)
                sent = {}
            if room < shortest and not sent:
                break
        if sent:
            self._tiers.append(sent)
        return pieces

    def _drop_most_sent(self) -> None:
        for tier in reversed(self._tiers):
            if tier:
                subject = next(iter(tier))
                self.drop(subject)
                self.dropped_count += 1
                return

    def _forget(self, sent: dict[str, bytes]) -> None:
        for subject, piece in sent.items():
            del self._tier_of[subject]
            self._forget_length(len(piece))

    def _forget_length(self, length: int) -> None:
        self._lengths[length] -= 1
        if not self._lengths[length]:
            del self._lengths[length]


def _newest(tier: dict[str, bytes], room: int, shortest: int) -> dict[str, bytes]:
    """Remove as many as fit from a tier, the newest first; none is shorter than `shortest`."""
    found: dict[str, bytes] = {}
    too_long: list[tuple[str, bytes]] = []
    while tier and room >= shortest:
        subject, piece = tier.popitem()
        if len(piece) <= room:
            room -= len(piece)
            found[subject] = piece
        else:
            too_long.append((subject, piece))
    tier.update(reversed(too_long))
    return found
