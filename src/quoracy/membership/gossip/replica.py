"""A replica: the state of one owner, as it was at some version.

Only the owner writes, and each write makes its next version.  A replica is exactly what the owner had
at `version` of `generation`, never a mixture.  So replicas of one owner are totally ordered by
(generation, version), merging two means taking the later one, and a delta is the difference between an
earlier and a later one.

A deleted key is kept as an entry without value, so that a delta can contain the deletion.  After a time
it is dropped, and `floor` rises to its version: from then on a peer below the floor is sent the whole
state, which replaces its own, since a delta no longer contains all deletions.  So a deleted key does
not return, however long a peer was away.

Invariants
    * `entries` is in the order of versions, and so is `tombstones`: all deletions above `floor`.
    * floor <= version; every entry has a version <= `version`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from hashlib import blake2b

from quoracy.membership.gossip.messages import Delta, Digest, Entry, encode
from quoracy.membership.gossip.model import StateChanged

__all__ = ["Replica", "hash64", "pieces"]


def hash64(text: str) -> int:
    """A hash of 63 bits, so that it is an int64 in any encoding.

    >>> hash64("a") == hash64("a") != hash64("b")
    True
    """
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


class Replica:
    """The state of one owner at one version.

    >>> mine = Replica("a", generation=1)
    >>> mine.write("colour", b"red", forget_at=60.0)
    >>> copy = Replica("a", generation=1)
    >>> [change.key for change in copy.apply(mine.delta_after(0), forget_at=60.0)]
    ['colour']
    """

    __slots__ = (
        "entries",
        "fingerprint",
        "floor",
        "generation",
        "live_bytes",
        "owner",
        "owner_hash",
        "tombstones",
        "version",
    )

    def __init__(self, owner: str, *, generation: int) -> None:
        self.owner = owner
        self.owner_hash = hash64(owner)
        self.generation = generation
        self.version = 0
        self.floor = 0
        self.entries: dict[str, Entry] = {}
        # Key -> when its deletion may be forgotten.
        self.tombstones: dict[str, float] = {}
        self.live_bytes = 0
        self.fingerprint = 0

    @property
    def rank(self) -> tuple[int, int]:
        return self.generation, self.version

    @property
    def digest(self) -> Digest:
        return Digest(self.owner, self.generation, self.version)

    @property
    def live_count(self) -> int:
        return len(self.entries) - len(self.tombstones)

    def live(self) -> Iterator[tuple[str, bytes]]:
        return ((key, entry.value) for key, entry in self.entries.items() if entry.value is not None)

    def value(self, key: str) -> bytes | None:
        entry = self.entries.get(key)
        return None if entry is None else entry.value

    def write(self, key: str, value: bytes | None, *, forget_at: float) -> None:
        """The owner's next version; no value deletes."""
        self.version += 1
        self._put(Entry(key, self.version, value), forget_at)

    def delta_after(self, version: int) -> Delta:
        """The delta for a peer that has `version` of this generation; 0: for any earlier state."""
        if not version or version < self.floor:
            entries = list(self.entries.values())
            return Delta(self.owner, self.generation, 0, self.version, self.floor, entries)
        newest = itertools.takewhile(
            lambda entry: entry.version > version, reversed(self.entries.values())
        )
        entries = list(newest)[::-1]
        return Delta(self.owner, self.generation, version, self.version, 0, entries)

    def is_continued_by(self, delta: Delta) -> bool:
        """Whether a later delta can be applied: it is whole, or begins at our version or before."""
        return not delta.after or (delta.generation == self.generation and delta.after <= self.version)

    def size_after(self, delta: Delta) -> tuple[int, int]:
        """How many live entries there will be after a delta, and how many bytes."""
        count, size = (self.live_count, self.live_bytes) if delta.after else (0, 0)
        for entry in delta.entries:
            if delta.after and self.value(entry.key) is not None:
                count, size = count - 1, size - _size(self.entries[entry.key])
            if entry.value is not None:
                count, size = count + 1, size + _size(entry)
        return count, size

    def apply(self, delta: Delta, *, forget_at: float) -> list[StateChanged]:
        """Apply a delta, which must be later; returns the changes."""
        assert (delta.generation, delta.upto) > self.rank
        assert self.is_continued_by(delta)
        before = dict(self.live()) if not delta.after else {}
        if not delta.after:
            self.entries, self.tombstones, self.live_bytes = {}, {}, 0
            self.floor = delta.floor
        changes = []
        for entry in delta.entries:
            if delta.after and entry.version <= self.version:
                continue
            old = before.pop(entry.key, None) if not delta.after else self.value(entry.key)
            self._put(entry, forget_at)
            if entry.value != old:
                changes.append(
                    StateChanged(self.owner, entry.key, entry.value, entry.version, delta.generation)
                )
        for key in before:
            changes.append(StateChanged(self.owner, key, None, delta.upto, delta.generation))
        self.generation, self.version = delta.generation, delta.upto
        return changes

    def forget_deletions(self, now: float, tombstones_max: int) -> None:
        """Forget deletions whose time is over, and the oldest beyond `tombstones_max`."""
        while self.tombstones:
            key, forget_at = next(iter(self.tombstones.items()))
            if forget_at > now and len(self.tombstones) <= tombstones_max:
                break
            del self.tombstones[key]
            self.floor = self.entries.pop(key).version

    def _put(self, entry: Entry, forget_at: float) -> None:
        old = self.entries.pop(entry.key, None)  # so that it moves to the end
        if old is not None:
            if old.value is None:
                del self.tombstones[entry.key]
            else:
                self.live_bytes -= _size(old)
        self.entries[entry.key] = entry
        if entry.value is None:
            self.tombstones[entry.key] = forget_at
        else:
            self.live_bytes += _size(entry)


def pieces(delta: Delta, bytes_max: int) -> list[Delta] | None:
    """A delta in parts that each fit, oldest first; None if it cannot be divided.

    It may be cut only after a version below which none is missing: where a key was written again later,
    its earlier version is in no delta, so a replica between the two would be one that never existed.

    >>> first, second, third = (Entry(key, version, bytes(30)) for version, key in enumerate("abc", 1))
    >>> [part.upto for part in pieces(Delta("a", 1, 0, 3, 0, [first, second, third]), 60)]
    [1, 2, 3]
    >>> pieces(Delta("a", 1, 0, 3, 0, [first, third]), 60) is None
    True
    """
    if len(encode(delta)) <= bytes_max:
        return [delta]
    if delta.floor or len(delta.entries) != delta.upto - delta.after:
        return None
    found, after, room = [], delta.after, 0
    part: list[Entry] = []
    header_bytes = len(encode(Delta(delta.owner, delta.generation, delta.upto, delta.upto, 0, []))) + 4
    for entry in delta.entries:
        size = _size(entry) + 16
        if header_bytes + size > bytes_max:
            return None
        if size > room and part:
            found.append(Delta(delta.owner, delta.generation, after, part[-1].version, 0, part))
            after, part = part[-1].version, []
        if not part:
            room = bytes_max - header_bytes
        part.append(entry)
        room -= size
    found.append(Delta(delta.owner, delta.generation, after, delta.upto, 0, part))
    return found


def _size(entry: Entry) -> int:
    return len(entry.key.encode()) + len(entry.value or b"")
