"""Who takes part in an election, and who outranks whom.

Peers are ordered by priority, the higher first, and by name where priorities are equal.  The list and
the priorities must be the same at every peer; nothing here changes them while an elector lives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from quoracy.errors import InvalidRequest, ProtocolError
from quoracy.membership.settings import NAME_BYTES_MAX

__all__ = ["PEERS_MAX", "Peers", "Rank"]

PEERS_MAX = 1_000

Rank: TypeAlias = tuple[int, str]


class Peers:
    """The peers as one of them sees them.

    >>> peers = Peers("b", ["a", "b", "c", "d"], priorities={"a": 10})
    >>> peers.higher
    ('a', 'd', 'c')
    >>> peers.outranks("a", "d")
    True
    >>> max(["a", "c"], key=peers.rank)
    'a'
    """

    __slots__ = ("_ranks", "all", "higher", "lower", "name", "others")

    def __init__(
        self, name: str, peers: Iterable[str], *, priorities: Mapping[str, int] | None = None
    ) -> None:
        self.name = name
        self.all = tuple(peers)
        priorities = priorities or {}
        if len(set(self.all)) != len(self.all):
            raise InvalidRequest(
                f"a peer is listed twice: {', '.join(sorted(self.all))}. Name each once."
            )
        if name not in self.all:
            raise InvalidRequest(
                f"{name!r} is not in its own list of peers. List all peers, itself included."
            )
        if len(self.all) > PEERS_MAX:
            raise InvalidRequest(
                f"{len(self.all):,} peers, and at most {PEERS_MAX:,} can elect. Let a few of them vote "
                "for all."
            )
        for peer in self.all:
            if not 0 < len(peer.encode()) <= NAME_BYTES_MAX:
                raise InvalidRequest(
                    f"the name {peer!r} must have 1 to {NAME_BYTES_MAX} bytes of UTF-8"
                )
        for peer in priorities:
            if peer not in self.all:
                raise InvalidRequest(f"a priority is set for {peer!r}, which is not one of the peers")
        self._ranks: dict[str, Rank] = {peer: (priorities.get(peer, 0), peer) for peer in self.all}
        self.others = tuple(peer for peer in self.all if peer != name)
        downwards = sorted(self.others, key=self._ranks.__getitem__, reverse=True)
        self.higher = tuple(peer for peer in downwards if self.outranks(peer, name))
        self.lower = tuple(peer for peer in downwards if self.outranks(name, peer))

    def rank(self, peer: str) -> Rank:
        """What peers are ordered by; the greatest should lead."""
        return self._ranks[peer]

    def outranks(self, one: str, other: str) -> bool:
        return self._ranks[one] > self._ranks[other]

    def check_sender(self, sender: str) -> None:
        """What comes from a stranger, or from ourselves, is no part of this election."""
        if sender == self.name or sender not in self._ranks:
            raise ProtocolError(
                f"{self.name} got an election message from {sender!r}, which is not one of its other "
                "peers. Give all peers the same list."
            )

    def check_known(self, peer: str) -> None:
        """A name inside a message."""
        if peer not in self._ranks:
            raise ProtocolError(
                f"{self.name} got an election message that names {peer!r}, which is not one of its "
                "peers. Give all peers the same list."
            )
