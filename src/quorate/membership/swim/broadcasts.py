"""News that rides on whatever is sent, each piece so many times and no more.

What was sent least goes first, so that new news spreads at once and old news fills what room is left.
News of a member replaces older news of the same one.  What members are comes before what users shout.

Invariants
    * A packet never exceeds its room, and a piece is never sent more than `transmits_max` times.
    * At most `pieces_max` are kept; beyond that the one that was sent most often gives way: most
      others know it already.
"""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["Broadcasts"]


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

    __slots__ = ("_pieces_max", "_tier_of", "_tiers", "dropped_count")

    def __init__(self, pieces_max: int) -> None:
        self._pieces_max = pieces_max
        # Subject -> how often it was sent; and for each such number, subject -> piece, oldest first.
        self._tier_of: dict[str, int] = {}
        self._tiers: list[dict[str, bytes]] = []
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

    def drop(self, subject: str) -> None:
        """There is nothing to say of this any more."""
        tier = self._tier_of.pop(subject, None)
        if tier is not None:
            del self._tiers[tier][subject]

    def take(self, *, room: int, transmits_max: int) -> list[bytes]:
        """Pieces for one packet, which count as sent."""
        if not self._tier_of:
            return []
        taken = list(self._fitting(room))
        for tier, subject, _ in taken:
            piece = self._tiers[tier].pop(subject)
            if tier + 1 >= transmits_max:
                del self._tier_of[subject]
                continue
            if tier + 1 == len(self._tiers):
                self._tiers.append({})
            self._tiers[tier + 1][subject] = piece
            self._tier_of[subject] = tier + 1
        return [piece for _, _, piece in taken]

    def _fitting(self, room: int) -> Iterator[tuple[int, str, bytes]]:
        for number, tier in enumerate(self._tiers):
            for subject in reversed(tier):  # the newest first
                piece = tier[subject]
                if len(piece) <= room:
                    room -= len(piece)
                    yield number, subject, piece
                    if room < _PIECE_BYTES_MIN:
                        return

    def _drop_most_sent(self) -> None:
        for tier in reversed(self._tiers):
            if tier:
                subject = next(iter(tier))
                self.drop(subject)
                self.dropped_count += 1
                return


# The shortest news there is; less room than that is not worth looking further.
_PIECE_BYTES_MIN = 8
