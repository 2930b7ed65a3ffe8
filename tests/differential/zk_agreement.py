"""Whether two servers said the same to one client.  Pure.

What each server chooses for itself is compared by what it means:

* A zxid of a Stat, or of the reply to a change that was made, is compared by its order among all
  those seen so far: a server may spend zxids on what the other does not (ZooKeeper on changes that
  fail), but which change came before which is the same on both.  The zxid of any other reply must not
  be older than a change that was answered before.
* A time belongs to a zxid: one server has one time for all that one change did.
* A session has the name under which both know it.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter

from tests.differential.zk_connection import Replied
from tests.differential.zk_intended import FIRST_ZXID, intended
from tests.differential.zk_seen import Seen

__all__ = ["Agreement", "Difference"]

_CLOCKS_APART_MS_MAX = 600_000


class Difference(AssertionError):
    """Both servers were asked the same and did not answer the same."""

    def __init__(self, what: str, theirs: object, ours: object) -> None:
        super().__init__(f"{what}\n  ZooKeeper: {theirs}\n  Quoracy:   {ours}")
        self.what, self.theirs, self.ours = what, theirs, ours


class Agreement:
    """What is known of both servers."""

    def __init__(self, intended: Counter[str]) -> None:
        self._intended = intended  # which intended differences were found, and how often
        # Changes as both number them, ascending in both.  First what was there before all changes: the
        # root, and what is below /zookeeper.
        self.changes: list[tuple[int, int]] = [(0, 0)]
        self._times: tuple[dict[int, int], dict[int, int]] = ({}, {})

    def compare(self, theirs: list[Seen], ours: list[Seen]) -> list[str]:
        """Raise if they do not agree; which intended differences there were in what was said."""
        found: list[str] = []
        for one, other in zip(theirs, ours, strict=False):
            if one.shape != other.shape:
                name = intended(one, other)
                if name is None:
                    raise Difference(_where(one, other), _told(theirs), _told(ours))
                found.append(name)
            self._compare_zxids(one, other)
        if len(theirs) != len(ours):
            raise Difference("one said more than the other", _told(theirs), _told(ours))
        for which, all_seen in enumerate((theirs, ours)):
            for one in all_seen:
                self._check_times(which, one)
        self._intended.update(found)
        return found

    def _compare_zxids(self, one: Seen, other: Seen) -> None:
        pairs = list(zip(one.reading.zxids, other.reading.zxids, strict=one.shape == other.shape))
        if len(one.reading.zxids) != len(other.reading.zxids):
            pairs.clear()  # one says more than the other, and means to
        if one.zxid is not None and other.zxid is not None and one.zxid > 0:
            headers = (one.zxid, other.zxid)
            if one.is_change:
                pairs.append(headers)
            for pair in pairs:
                if pair[0] > headers[0] or pair[1] > headers[1]:
                    raise Difference("a zxid newer than that of the reply", one.item, other.item)
            newest = self.changes[-1]
            if headers[0] < newest[0] or headers[1] < newest[1]:
                raise Difference(f"a reply older than the change {newest}", one.item, other.item)
        for pair in pairs:
            self._place(pair, one, other)

    def _place(self, pair: tuple[int, int], one: Seen, other: Seen) -> None:
        if pair[0] == 0 != pair[1] and self.changes[0] == (0, 0):
            self.changes[0] = pair
            self._intended[FIRST_ZXID] += 1
        at = bisect_left(self.changes, pair)
        before = self.changes[at - 1] if at else (-1, -1)
        after = self.changes[at] if at < len(self.changes) else None
        if after == pair:
            return
        ascending = before[0] < pair[0] and before[1] < pair[1]
        if not ascending or (after is not None and not (pair[0] < after[0] and pair[1] < after[1])):
            raise Difference(
                f"the order of changes: {pair} does not fit between {before} and {after}",
                one.item,
                other.item,
            )
        self.changes.insert(at, pair)

    def _check_times(self, which: int, one: Seen) -> None:
        times = self._times[which]
        for zxid, ms in one.reading.times:
            known = times.setdefault(zxid, ms)
            now = time.time() * 1000
            if known != ms or (ms and abs(now - ms) > _CLOCKS_APART_MS_MAX):
                told = [f"zxid {zxid}: {ms}, before {known}, now {now:.0f}", "-"]
                raise Difference("times", *(told if which == 0 else told[::-1]))


def _told(all_seen: list[Seen]) -> str:
    return "\n             ".join(repr(one.shape) for one in all_seen) or "nothing"


def _where(one: Seen, other: Seen) -> str:
    """The kind of a difference: for the same kind, the same words."""
    if one.shape[0] != other.shape[0]:
        return f"{one.shape[0]} or {other.shape[0]}"
    for at, (this, that) in enumerate(zip(one.shape, other.shape, strict=False)):
        if this != that:
            if isinstance(one.item, Replied) and at == 3:
                return f"{one.shape[0]}: error {this} or {that}"
            return f"{one.shape[0]}: field {at}"
    return f"{one.shape[0]}: length"
