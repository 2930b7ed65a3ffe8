"""The table of known members: the order in which they are probed, and a hash of the members present.

All others are probed in random order, a new order each round, so that no member waits longer than two
rounds.  The order is drawn as it is needed: each step takes a random one of those that the round has
left, which is a shuffle without a cost at the start of a round.  A new member is among those left.

The hash allows to compare two tables without sending them: it covers name and incarnation of every
member that is present, in `BUCKETS` parts by name.  Dead members are not in it, since a table from
which they were forgotten is not outdated.

Invariants
    * Records are immutable and may be shared by many tables in one process.
    * `_order` has every present name but our own exactly once, so the dead cost nothing when probing.
    * At most `members_max` are known; beyond that newcomers are not taken in.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from types import MappingProxyType
from zlib import crc32

from quoracy.membership.model import Member
from quoracy.membership.swim.messages import BUCKETS

__all__ = ["MemberTable", "bucket_of"]


class MemberTable:
    """The table of one member.  `own_name` is in it, too, but never probed.

    >>> table = MemberTable("a", [Member("a", "h:1", 1), Member("b", "h:2", 1)])
    >>> table.next_probed(random.Random(1)).name
    'b'
    """

    __slots__ = ("_digests", "_lap_at", "_members", "_order", "_own_name", "_present_count")

    def __init__(self, own_name: str, members: Iterable[Member] = ()) -> None:
        self._own_name = own_name
        self._members: dict[str, Member] = {}
        self._order: list[str] = []
        self._lap_at = 0  # names before it were probed in this round
        self._present_count = 0
        self._digests = array("Q", bytes(8 * BUCKETS))
        for member in members:
            self.put(member)

    def copy(self, own_name: str) -> MemberTable:
        """A copy for another member; quick, for simulations of thousands."""
        new = MemberTable(own_name)
        new._members = self._members.copy()
        new._order = [*self._order]
        ours = self._members.get(self._own_name)
        if ours is not None and ours.is_present:
            new._order.append(ours.name)
        if own_name in new._order:
            new._order.remove(own_name)
        new._present_count = self._present_count
        new._digests = self._digests[:]
        return new

    @property
    def members(self) -> Mapping[str, Member]:
        return MappingProxyType(self._members)

    @property
    def present_count(self) -> int:
        """How many are alive or suspected, ourselves among them."""
        return self._present_count

    def __len__(self) -> int:
        return len(self._members)

    def get(self, name: str) -> Member | None:
        return self._members.get(name)

    def put(self, member: Member) -> None:
        """Add a member, or replace its entry."""
        old = self._members.get(member.name)
        was_present = old is not None and old.is_present
        is_present = member.is_present
        self._members[member.name] = member
        if old is not None and was_present and is_present and old.incarnation == member.incarnation:
            return  # the hash does not cover suspicions
        if old is not None and was_present:
            self._count(old, -1)
        if is_present:
            self._count(member, +1)
        if was_present != is_present and member.name != self._own_name:
            if is_present:
                self._order.append(member.name)
            else:
                self._drop_from_order(member.name)

    def forget(self, name: str) -> None:
        """Remove a member, which must not be present."""
        member = self._members.pop(name)
        assert not member.is_present, name

    def next_probed(self, rng: random.Random) -> Member | None:
        """The next of this round, or the first of a new one; None if there is nobody else."""
        order = self._order
        if not order:
            return None
        if self._lap_at >= len(order):
            self._lap_at = 0
        at = self._lap_at + int(rng.random() * (len(order) - self._lap_at))
        name = order[at]
        order[at], order[self._lap_at] = order[self._lap_at], name
        self._lap_at += 1
        return self._members[name]

    def some(self, count: int, rng: random.Random, wanted: Callable[[Member], bool]) -> list[Member]:
        """Up to `count` others that are present and wanted, at random, none twice."""
        order, members = self._order, self._members
        found: dict[str, Member] = {}
        size = len(order)
        if size > 3 * count:
            # Where most are wanted, a few draws are enough; where few are, all are searched below.
            for _ in range(3 * count):
                member = members[order[int(rng.random() * size)]]
                if member.name not in found and wanted(member):
                    found[member.name] = member
                    if len(found) == count:
                        return list(found.values())
        left = [name for name in order if name not in found and wanted(members[name])]
        for name in rng.sample(left, min(count - len(found), len(left))):
            found[name] = members[name]
        return list(found.values())

    # -- comparing with another table ----------------------------------------------------------------

    @property
    def root(self) -> int:
        root = 0
        for digest in self._digests:
            root = (root * 0x100000001B3 + digest) & 0x7FFF_FFFF_FFFF_FFFF
        return root

    @property
    def digests(self) -> bytes:
        return b"".join(digest.to_bytes(8, "big") for digest in self._digests)

    def differing(self, digests: bytes) -> list[int]:
        """The parts whose hash differs from ours."""
        return [
            bucket
            for bucket, digest in enumerate(self._digests)
            if digest != int.from_bytes(digests[8 * bucket : 8 * bucket + 8], "big")
        ]

    def within(self, buckets: Iterable[int]) -> list[Member]:
        """All members in these parts, including those that died or left."""
        wanted = frozenset(buckets)
        return [member for name, member in self._members.items() if bucket_of(name) in wanted]

    def _drop_from_order(self, name: str) -> None:
        at = self._order.index(name)
        del self._order[at]
        if at < self._lap_at:
            self._lap_at -= 1

    def _count(self, member: Member, change: int) -> None:
        self._present_count += change
        self._digests[bucket_of(member.name)] ^= _digest(member)


def bucket_of(name: str) -> int:
    return crc32(name.encode()) % BUCKETS


def _digest(member: Member) -> int:
    text = f"{member.incarnation}:{member.name}"
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
