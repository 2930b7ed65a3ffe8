"""All replicas by owner, and hashes that show in a few bytes whether two tables are equal.

The root is the exclusive or of one hash for each owner's (generation, version), so that a change costs
the same whatever the number of owners.  Owners are divided into parts by a hash of their names; each
part has such a sum, too, which shows where two tables differ.

Invariants
    * `root` and the sums of the parts are those of the replicas, after every call.
    * At most `owners_max` owners, and as many forgotten ones; the one forgotten for longest makes room.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from quoracy.membership.gossip.messages import PART_BYTES, Digest
from quoracy.membership.gossip.replica import Replica, hash64

__all__ = ["Table"]

_PART_MASK = 2 ** (8 * PART_BYTES) - 1


class Table:
    """The replicas by owner.

    >>> table = Table(owners_max=100, parts_count=4)
    >>> replica = Replica("a", generation=1)
    >>> replica.write("colour", b"red", forget_at=60.0)
    >>> table.renew(replica)
    >>> [digest.version for digest in table.digests(parts_count=1, parts=[0])]
    [1]
    """

    __slots__ = ("_forgotten", "_owners_max", "_parts", "_parts_count", "_replicas", "_sums", "root")

    def __init__(self, *, owners_max: int, parts_count: int) -> None:
        self._owners_max = owners_max
        self._parts_count = parts_count
        self._replicas: dict[str, Replica] = {}
        # Only the parts that hold something: most tables are small.
        self._parts: dict[int, dict[str, Replica]] = {}
        self._sums: dict[int, int] = {}
        # Owner -> the generation that must not return, and until when.
        self._forgotten: dict[str, tuple[int, float]] = {}
        self.root = 0

    @property
    def replicas(self) -> Mapping[str, Replica]:
        return MappingProxyType(self._replicas)

    @property
    def is_full(self) -> bool:
        return len(self._replicas) >= self._owners_max

    @property
    def forgotten_count(self) -> int:
        return len(self._forgotten)

    def get(self, owner: str) -> Replica | None:
        return self._replicas.get(owner)

    def digest(self, owner: str) -> Digest:
        """The version of the copy of an owner's map; 0 and 0 if the owner is not known."""
        replica = self._replicas.get(owner)
        return Digest(owner, 0, 0) if replica is None else replica.digest

    def renew(self, replica: Replica) -> None:
        """Add a replica, or renew the hash of one that has become later."""
        part = replica.owner_hash % self._parts_count
        fingerprint = hash64(f"{replica.generation} {replica.version} {replica.owner}")
        if replica.owner in self._replicas:
            change = fingerprint ^ replica.fingerprint
        else:
            change = fingerprint
            self._replicas[replica.owner] = replica
            self._parts.setdefault(part, {})[replica.owner] = replica
            self._forgotten.pop(replica.owner, None)
        replica.fingerprint = fingerprint
        self.root ^= change
        self._sums[part] = self._sums.get(part, 0) ^ change

    def forget(self, owner: str, *, until: float) -> Replica | None:
        """Remove an owner and bar its generation for a while.  None if it is not known."""
        replica = self._replicas.pop(owner, None)
        if replica is None:
            return None
        part = replica.owner_hash % self._parts_count
        del self._parts[part][owner]
        self.root ^= replica.fingerprint
        self._sums[part] ^= replica.fingerprint
        if not self._parts[part]:
            del self._parts[part], self._sums[part]
        if len(self._forgotten) >= self._owners_max:
            del self._forgotten[next(iter(self._forgotten))]
        self._forgotten[owner] = (replica.generation, until)
        return replica

    def is_barred(self, owner: str, generation: int) -> bool:
        return generation <= self._forgotten.get(owner, (-1, 0.0))[0]

    def barred_generation(self, owner: str) -> int:
        return self._forgotten[owner][0]

    def let_in_again(self, now: float) -> None:
        """Admit the owners again whose time is over."""
        ended = [owner for owner, (_, until) in self._forgotten.items() if until <= now]
        for owner in ended:
            del self._forgotten[owner]

    def sums(self, parts_count: int) -> bytes:
        """Four bytes for each part."""
        if parts_count == self._parts_count:
            sums = self._sums
        else:
            sums = {}
            for replica in self._replicas.values():
                part = replica.owner_hash % parts_count
                sums[part] = sums.get(part, 0) ^ replica.fingerprint
        found = bytearray(PART_BYTES * parts_count)
        for part, value in sums.items():
            at = part * PART_BYTES
            found[at : at + PART_BYTES] = (value & _PART_MASK).to_bytes(PART_BYTES, "big")
        return bytes(found)

    def differing(self, hashes: bytes) -> list[int]:
        """The parts whose sums differ from those of another table."""
        mine = self.sums(len(hashes) // PART_BYTES)
        if mine == hashes:
            return []
        return [
            at // PART_BYTES
            for at in range(0, len(hashes), PART_BYTES)
            if mine[at : at + PART_BYTES] != hashes[at : at + PART_BYTES]
        ]

    def in_parts(self, *, parts_count: int, parts: list[int]) -> Iterator[Replica]:
        if parts_count == self._parts_count:
            for part in parts:
                yield from self._parts.get(part, {}).values()
        elif parts:
            wanted = set(parts)
            for replica in self._replicas.values():
                if replica.owner_hash % parts_count in wanted:
                    yield replica

    def digests(self, *, parts_count: int, parts: list[int]) -> list[Digest]:
        return [replica.digest for replica in self.in_parts(parts_count=parts_count, parts=parts)]
