"""A batch: what one group commit makes durable, all or nothing."""

from __future__ import annotations

from quoracy.store.model import KeyValue

__all__ = ["Batch", "Versions"]

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
