"""Followers: faces in this process that are told of each commit in the turn in which it is durable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from quorate.engines.embedded.state import State
from quorate.errors import Compacted
from quorate.store.api import Follower
from quorate.store.model import Delete, KeyRange, KeyValue, Put, Txn, TxnResult

if TYPE_CHECKING:
    from quorate.engines.embedded.group_commit import GroupCommit

__all__ = ["EmbeddedFollowing", "Followings"]


class EmbeddedFollowing:
    """One follower, its keys, and what others did to them."""

    __slots__ = ("_all", "_commits", "follower", "foreign_revision", "keys")

    def __init__(
        self, commits: GroupCommit, keys: KeyRange, follower: Follower, all: Followings
    ) -> None:
        self.keys, self.follower = keys, follower
        self.foreign_revision = 0
        self._commits, self._all = commits, all

    def take(self, txn: Txn, on_failed: Callable[[BaseException], None]) -> TxnResult:
        return self._commits.take(txn, on_failed, self)

    def write(self, ops: tuple[Put | Delete, ...], on_failed: Callable[[BaseException], None]) -> int:
        return self._commits.write(ops, on_failed, self)

    def stop(self) -> None:
        self._all.discard(self)


class Followings:
    """All followers of one store."""

    def __init__(self, commits: GroupCommit, state: State) -> None:
        self._commits, self._state = commits, state
        self._all: list[EmbeddedFollowing] = []

    def __bool__(self) -> bool:
        return bool(self._all)

    def has_others_than(self, by: EmbeddedFollowing | None) -> bool:
        """Whether anybody but `by` follows."""
        return len(self._all) > (by is not None)

    def add(self, keys: KeyRange, after: int, durable: int, follower: Follower) -> EmbeddedFollowing:
        """Tell it what happened since, and from now on what happens."""
        if after + 1 < self._state.compact_revision:
            raise Compacted(wanted=after + 1, oldest=self._state.compact_revision)
        following = EmbeddedFollowing(self._commits, keys, follower, self)
        self._tell(following, after + 1, durable)
        # What is not durable yet it will be told; until then it does not know everything.
        following.foreign_revision = self._state.revision
        self._all.append(following)
        return following

    def discard(self, following: EmbeddedFollowing) -> None:
        if following in self._all:
            self._all.remove(following)

    def note(self, revision: int, kvs: Sequence[KeyValue], by: EmbeddedFollowing | None) -> None:
        """A change was made, in memory."""
        for following in self._all:
            if following is not by and any(following.keys.contains(kv.key) for kv in kvs):
                following.foreign_revision = revision

    def tell(self, first: int, last: int) -> None:
        """These revisions are durable."""
        for following in tuple(self._all):
            try:
                self._tell(following, first, last)
            except Exception as error:  # noqa: BLE001 (its own; the others must not suffer from it)
                self.discard(following)
                following.follower.failed(error)

    def dismiss(self, error: BaseException) -> None:
        followings, self._all = self._all, []
        for following in followings:
            following.follower.failed(error)

    def _tell(self, following: EmbeddedFollowing, first: int, last: int) -> None:
        keys, follower = following.keys, following.follower
        start, end, changes_of = keys.start, keys.end, self._state.changes
        for revision in range(first, last + 1):
            kvs: Sequence[KeyValue] = changes_of(revision)
            # All keys of a transaction mostly belong to one face.
            for kv in kvs:
                if kv.key < start or (end is not None and kv.key >= end):
                    kvs = [kv for kv in kvs if keys.contains(kv.key)]
                    break
            if kvs:
                follower.changed(revision, kvs)
        follower.durable(last)
