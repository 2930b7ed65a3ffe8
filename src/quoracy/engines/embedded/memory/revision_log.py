"""What each revision wrote, in order, from the oldest that is kept on: what watches are fed from.

Most revisions wrote one version.  It is kept as it is: a tuple around it would be 48 bytes for each
revision, and work for the garbage collector.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from quoracy.store.model import KeyValue

__all__ = ["Changes", "RevisionLog"]

Changes = tuple[KeyValue, ...]

# A list only while its transaction is under way, or the log is being filled.
_Entry = KeyValue | Changes | list[KeyValue]

_NOTHING: Changes = ()

_DROPPED_MAX: Final = 4096


class RevisionLog:
    """Versions by revision, without gaps; a revision of which nothing is known has none.

    first: the oldest revision that is here.

    What was dropped leaves its places behind, empty, until there are `_DROPPED_MAX` of them: to take
    some from the front of a list moves all that is behind them.
    """

    __slots__ = ("_base", "_entries", "first")

    def __init__(self, first: int) -> None:
        self.first = first
        self._base = first  # the revision of the first place
        self._entries: list[_Entry] = []

    @property
    def newest(self) -> int:
        """The last revision that is here; the one before the first, if none is."""
        return self._base + len(self._entries) - 1

    def changes(self, revision: int) -> Changes:
        return _changes(self._entries[revision - self._base])

    def since(self, revision: int) -> Iterable[KeyValue]:
        """What was written after a revision."""
        return itertools.chain.from_iterable(map(_changes, self._entries[revision + 1 - self._base :]))

    def oldest(self, count: int) -> Iterator[Changes]:
        """What the oldest revisions wrote, `count` of them, one after the other."""
        dropped = self.first - self._base
        return map(_changes, self._entries[dropped : dropped + count])

    def append(self, changes: Sequence[KeyValue]) -> None:
        """What the next revision wrote."""
        self._entries.append(changes[0] if len(changes) == 1 else tuple(changes))

    def begin(self, changes: list[KeyValue]) -> None:
        """What the next revision writes, to be filled until `end`; it can be seen meanwhile."""
        self._entries.append(changes)

    def end(self) -> None:
        self.append(_changes(self._entries.pop()))

    def append_one(self, kv: KeyValue) -> None:
        """The one version that the next revision wrote."""
        self._entries.append(kv)

    def extend_to(self, revision: int) -> None:
        """Fill the log up to a revision with entries of which only the number is known."""
        missing = revision - self.newest
        if missing > 0:
            self._entries += [_NOTHING] * missing

    def note(self, kv: KeyValue) -> None:
        """While it is filled: one more that its revision, the newest so far or a later one, wrote."""
        self.extend_to(kv.mod_revision)
        entry = self._entries[-1]
        if entry == _NOTHING:
            self._entries[-1] = kv
        elif isinstance(entry, list):
            entry.append(kv)  # the end of a lease can be a hundred thousand
        else:
            self._entries[-1] = [*_changes(entry), kv]

    def filled(self) -> None:
        """All that is to be noted was."""
        self._entries = [tuple(entry) if isinstance(entry, list) else entry for entry in self._entries]

    def gaps(self, after: int) -> Iterator[int]:
        """Revisions after this one of which nothing is known."""
        for revision in range(max(after + 1, self.first), self._base + len(self._entries)):
            if self._entries[revision - self._base] == _NOTHING:
                yield revision

    def drop(self, count: int) -> None:
        """Forget the oldest `count` revisions."""
        dropped = self.first - self._base
        self._entries[dropped : dropped + count] = [_NOTHING] * count
        self.first += count
        if dropped + count >= _DROPPED_MAX:
            del self._entries[: dropped + count]
            self._base = self.first


def _changes(entry: _Entry) -> Changes:
    # In this order: to ask whether something is a struct takes longer than the rest of it.
    if isinstance(entry, tuple):
        return entry
    return tuple(entry) if isinstance(entry, list) else (entry,)
