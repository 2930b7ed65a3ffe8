"""All that one participant knows, how it merges deltas, and the bounds of what one owner may have.

Merging keeps the later of two replicas of an owner, so the order, the number and the source of deltas
make no difference to the result.  A write of our own beyond a bound raises; a delta that leads beyond
one is refused as a whole, since a part of it would be a state that its owner never had.

Invariants
    * A replica only becomes later: a higher generation, or a higher version of the same.
    * Our own replica changes by our writes only, its generation also to stay ahead of claims of others.
    * A forgotten owner is refused until its generation grows or `forget_s` is over.
"""

from __future__ import annotations

from collections.abc import Iterable

from quoracy.errors import InvalidRequest, TooLarge
from quoracy.membership.gossip.messages import COUNT_MAX, Delta, Digest
from quoracy.membership.gossip.model import GossipStatistics, StateChanged
from quoracy.membership.gossip.replica import Replica
from quoracy.membership.gossip.rumours import Rumours
from quoracy.membership.gossip.settings import GossipSettings
from quoracy.membership.gossip.table import Table

__all__ = ["State", "check_write"]


class State:
    """The replicas of all owners, including ours, and what of it is news.

    >>> state = State("a", generation=1, settings=GossipSettings(), counters=GossipStatistics())
    >>> state.write("colour", b"red", now=0.0)
    >>> state.merge(Delta("b", 1, 0, 1, 0, []), now=0.0)
    []
    >>> sorted(state.table.replicas)
    ['a', 'b']
    """

    def __init__(
        self, name: str, *, generation: int, settings: GossipSettings, counters: GossipStatistics
    ) -> None:
        self.mine = Replica(name, generation=generation)
        self.table = Table(owners_max=settings.owners_max, parts_count=settings.buckets)
        self.rumours = Rumours(hot_max=settings.hot_max)
        self.participants_count = 1
        self._settings = settings
        self._counters = counters
        self._has_tombstones = False

    @property
    def needs_cleaning(self) -> bool:
        return self._has_tombstones or self.table.forgotten_count > 0

    def write(self, key: str, value: bytes | None, now: float) -> None:
        """Make our next version, unless the value is the same."""
        if value is not None:
            check_write(self._settings, self.mine, key, value)
        if self.mine.value(key) != value:
            before = self.mine.version
            self.mine.write(key, value, forget_at=now + self._settings.tombstone_s)
            self._advanced(self.mine, before, now)

    def merge(self, delta: Delta, now: float) -> list[StateChanged] | None:
        """Apply a delta if it is later.  None if it begins after what is known here."""
        if delta.owner == self.mine.owner:
            return []
        replica = self.table.get(delta.owner)
        if replica is None:
            replica = Replica(delta.owner, generation=delta.generation)
        generation, version = replica.rank
        if (delta.generation, delta.upto) <= (generation, version):
            self._counters.stale += 1
            return []
        if not self.may_keep(delta.owner, delta.generation):
            return []
        if not replica.is_continued_by(delta):
            self._counters.gaps += 1
            return None
        if not _is_within_bounds(self._settings, replica, delta):
            self._counters.refused += 1
            return []
        changes = replica.apply(delta, forget_at=now + self._settings.tombstone_s)
        self._counters.applied += 1
        self._advanced(replica, version if generation == delta.generation else 0, now)
        return changes

    def defend(self, claim: Digest, now: float, *, is_gone: bool = False) -> None:
        """If a claim is about us, become later than what its sender knows, or has forgotten."""
        mine = self.mine
        if claim.owner != mine.owner:
            return
        if is_gone:
            outdated = claim.generation >= mine.generation
        else:
            outdated = (claim.generation, claim.version) > mine.rank
        if outdated and claim.generation < COUNT_MAX - 1:
            mine.generation = claim.generation + 1
            self._counters.skips += 1
        elif mine.version or not claim.generation:
            return
        # Nothing is written in this generation yet: an empty version 1 ends the earlier generation.
        mine.version = max(1, mine.version)
        self._advanced(mine, 0, now)

    def forget(self, owner: str, now: float) -> list[StateChanged]:
        if owner == self.mine.owner:
            raise InvalidRequest(f"{owner!r} is ourselves: delete keys instead")
        replica = self.table.forget(owner, until=now + self._settings.forget_s)
        if replica is None:
            return []
        self.rumours.cool(owner)
        return [
            StateChanged(owner, key, None, replica.version, replica.generation)
            for key, _ in replica.live()
        ]

    def lacking(self, digests: Iterable[Digest]) -> list[Digest]:
        """The digests known here of the owners of which a peer knows more."""
        found = []
        for digest in digests:
            known = self.table.digest(digest.owner)
            if digest.owner == self.mine.owner:
                continue
            if (digest.generation, digest.version) <= (known.generation, known.version):
                continue
            if self.may_keep(digest.owner, digest.generation):
                found.append(known)
        return found

    def gone(self, digests: Iterable[Digest]) -> list[Digest]:
        """The owners in these digests that are forgotten here."""
        return [
            Digest(digest.owner, self.table.barred_generation(digest.owner), 0)
            for digest in digests
            if self.table.is_barred(digest.owner, digest.generation)
        ]

    def beyond(self, known: Digest) -> Delta | None:
        """The delta that a peer lacks which knows this much of an owner; None if nothing."""
        replica = self.table.get(known.owner)
        if replica is None or (known.generation, known.version) >= replica.rank:
            return None
        return replica.delta_after(known.version if known.generation == replica.generation else 0)

    def may_keep(self, owner: str, generation: int) -> bool:
        if self.table.is_barred(owner, generation):
            self._counters.revenants += 1
            return False
        if self.table.is_full and self.table.get(owner) is None:
            self._counters.owners_refused += 1
            return False
        return True

    def clean(self, now: float) -> None:
        """Forget old deletions, and admit owners again whose time is over."""
        self._has_tombstones = False
        for replica in self.table.replicas.values():
            if replica.tombstones:
                replica.forget_deletions(now, self._settings.tombstones_max)
                self._has_tombstones |= bool(replica.tombstones)
        self.table.let_in_again(now)

    def _advanced(self, replica: Replica, after: int, now: float) -> None:
        """A replica became later than `after`: renew its hash, and make it a rumour if we push."""
        replica.forget_deletions(now, self._settings.tombstones_max)
        self.table.renew(replica)
        self._has_tombstones |= bool(replica.tombstones)
        if self._settings.mode.pushes:
            times = self._settings.pushes_max(self.participants_count)
            self.rumours.heat(replica.owner, generation=replica.generation, after=after, times=times)


def _is_within_bounds(settings: GossipSettings, replica: Replica, delta: Delta) -> bool:
    """Whether a replica stays within the bounds of one owner after a delta."""
    for entry in delta.entries:
        if len(entry.key.encode()) > settings.key_bytes_max:
            return False
        if len(entry.value or b"") > settings.value_bytes_max:
            return False
    count, size = replica.size_after(delta)
    return count <= settings.entries_max and size <= settings.owner_bytes_max


def check_write(settings: GossipSettings, mine: Replica, key: str, value: bytes) -> None:
    """Raises `InvalidRequest` if we may not write that.

    >>> check_write(GossipSettings(value_bytes_max=3), Replica("a", generation=1), "colour", b"blue")
    Traceback (most recent call last):
    ...
    quoracy.errors.TooLarge: the value of 'colour' is 4; the limit is 3. Send less, or raise ...
    """
    if not key:
        raise InvalidRequest("a key must not be empty: give it a name")
    key_bytes = len(key.encode())
    old = mine.value(key)
    count = mine.live_count + (old is None)
    size = mine.live_bytes + len(value) + (key_bytes if old is None else -len(old))
    for what, found, found_max, setting in (
        (f"the key {key[:40]!r}", key_bytes, settings.key_bytes_max, "key_bytes_max"),
        (f"the value of {key[:40]!r}", len(value), settings.value_bytes_max, "value_bytes_max"),
        ("the number of keys", count, settings.entries_max, "entries_max"),
        ("the size of all keys and values", size, settings.owner_bytes_max, "owner_bytes_max"),
    ):
        if found > found_max:
            raise TooLarge(
                what,
                size=found,
                size_max=found_max,
                setting=f"{setting} of every participant, or delete keys first",
            )
