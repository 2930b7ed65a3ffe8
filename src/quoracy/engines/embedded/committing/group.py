"""A commit group: what goes to disk together, all or nothing, and the completions that wait for it."""

from __future__ import annotations

import logging
from typing import Any

from quoracy.store.completion import Completion, FutureCompletion
from quoracy.store.model import KeyValue, Revision

__all__ = ["Batch", "Group", "Versions", "complete"]

_log = logging.getLogger(__name__)

Versions = tuple[KeyValue, ...]

# A commit of this length is in the commit log's form in about half a millisecond.
_SHORT_BYTES = 256 * 1024
_SHORT_VERSIONS = 4096
_SHORT_LEASES = 4096


class Batch:
    """Changes, leases, and what is kept beside the data."""

    __slots__ = ("changes", "compact_revision", "leases", "meta", "put_bytes")

    def __init__(self) -> None:
        self.changes: list[Versions] = []  # one entry per revision, in order
        self.put_bytes = 0  # what its puts may add, at most
        self.leases: list[tuple[int, float | None]] = []  # granted with a time to live, or ended
        self.compact_revision: int | None = None
        self.meta: dict[str, object] = {}

    def absorb(self, later: Batch) -> None:
        """Become what both come to, one after the other."""
        self.changes += later.changes
        self.absorb_rest(later)

    def absorb_rest(self, later: Batch) -> None:
        """`absorb`, but for the changes."""
        self.put_bytes += later.put_bytes
        self.leases += later.leases
        if later.compact_revision is not None:
            self.compact_revision = later.compact_revision
        if later.meta:
            self.meta.update(later.meta)

    @property
    def only_changes(self) -> bool:
        return not (self.leases or self.meta) and self.compact_revision is None

    @property
    def is_short(self) -> bool:
        """Whether it can be encoded while others wait."""
        if self.put_bytes > _SHORT_BYTES or len(self.leases) > _SHORT_LEASES:
            return False
        return self.versions_count <= _SHORT_VERSIONS

    @property
    def versions_count(self) -> int:
        count = 0
        for versions in self.changes:
            count += len(versions)
        return count

    def __bool__(self) -> bool:
        return bool(self.changes) or not self.only_changes


class Group(Batch):
    """A batch and its completions, each with the result that it gets, or with why it was rejected."""

    __slots__ = ("clients_count", "completions", "leases_count", "revision")

    def __init__(self) -> None:
        super().__init__()
        self.leases_count = 0  # leases there are when it is durable
        self.revision: Revision = Revision(0)
        self.completions: list[tuple[Completion, Any]] = []
        self.clients_count = 0  # completions of a face, whose clients mostly write again at once

    def add(self, completion: Completion, result: Any) -> None:
        self.completions.append((completion, result))
        if type(completion) is not FutureCompletion:
            self.clients_count += 1

    def succeeded(self) -> None:
        for completion, result in self.completions:
            complete(completion, result)

    def failed(self, error: BaseException) -> None:
        for completion, _ in self.completions:
            complete(completion, error)


def complete(completion: Completion, result: Any) -> None:
    """Call `done` with a result, or with an error in its place."""
    try:
        if isinstance(result, BaseException):
            completion.done(None, result)
        else:
            completion.done(result, None)
    except Exception:  # noqa: BLE001 (it is logged)
        # Against the contract.  The others wait as well, and nobody else would learn of it.
        _log.exception("a completion failed")
