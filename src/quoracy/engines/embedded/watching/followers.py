"""Followers: faces in this process, which receive each commit in the turn in which it is durable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from quoracy.engines.embedded.memory.state import State
from quoracy.errors import Compacted
from quoracy.store.following import NOT_REPLYING, Following, KeyWrite, OnFailed, Written
from quoracy.store.legacy import Follower
from quoracy.store.model import KeyRange, KeyValue, Txn, TxnResult

if TYPE_CHECKING:
    from quoracy.engines.embedded.committing.group_commit import GroupCommit

__all__ = ["EmbeddedFollowing", "Followings"]


class EmbeddedFollowing(Following):
    """One follower, its keys, and what others did to them.

    written: revisions that it made with `write` and has not been notified of yet, in order.
    """

    __slots__ = ("_all", "_commits", "follower", "keys", "written")

    def __init__(
        self, commits: GroupCommit, keys: KeyRange, follower: Follower, all: Followings
    ) -> None:
        super().__init__()
        self.keys, self.follower = keys, follower
        self.written: list[int] = []
        self._commits, self._all = commits, all

    def take(self, txn: Txn, on_failed: OnFailed) -> TxnResult:
        return self._commits.take(txn, on_failed, self)

    def write(
        self, writes: tuple[KeyWrite, ...], on_failed: OnFailed, written: Written = NOT_REPLYING
    ) -> int:
        revision = self._commits.write(writes, on_failed, written, self)
        self.written.append(revision)
        return revision

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
        # It will receive what is not durable yet; until then it does not know every change.
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
        follower = following.follower
        revision = first
        for run_first, run_last in _runs(following.written, last):
            self._tell_changes(following, revision, run_first - 1)
            follower.wrote(run_first, run_last)
            revision = run_last + 1
        self._tell_changes(following, revision, last)
        follower.durable(last)

    def _tell_changes(self, following: EmbeddedFollowing, first: int, last: int) -> None:
        """Revisions that it did not write itself, or not plainly."""
        if first > last:
            return
        keys, follower = following.keys, following.follower
        start, end = keys.start, keys.end
        for revision in range(first, last + 1):
            kvs: Sequence[KeyValue] = self._state.changes(revision)
            # All keys of a transaction mostly belong to one face.
            for kv in kvs:
                if kv.key < start or (end is not None and kv.key >= end):
                    kvs = [kv for kv in kvs if keys.contains(kv.key)]
                    break
            if kvs:
                follower.changed(revision, kvs)


def _runs(revisions: list[int], last: int) -> list[tuple[int, int]]:
    """Take what is up to `last` from a list in order, as pairs: the first and the last of a run."""
    runs: list[tuple[int, int]] = []
    taken, count = 0, len(revisions)
    while taken < count and revisions[taken] <= last:
        begin = end = revisions[taken]
        taken += 1
        while taken < count and revisions[taken] == end + 1 <= last:
            end += 1
            taken += 1
        runs.append((begin, end))
    del revisions[:taken]
    return runs
