"""The naive model: what a store must hold, as plain dicts and lists that nobody could get wrong."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from quoracy.store.digest import Digest
from quoracy.store.model import KeyValue
from tests.faults.reports import Compact, End, Grant, Operation, Remove, Write

__all__ = ["Changes", "Model"]

Changes = tuple[KeyValue, ...]


class Model:
    """Every version of every key, from the first revision that was not forgotten."""

    def __init__(self) -> None:
        self.revision = 1
        self.compact_revision = 0
        self.leases: dict[int, float] = {}
        self._versions: dict[bytes, list[KeyValue]] = {}

    def copy(self) -> Model:
        twin = Model()
        twin.revision, twin.compact_revision = self.revision, self.compact_revision
        twin.leases = dict(self.leases)
        twin._versions = {key: list(versions) for key, versions in self._versions.items()}
        return twin

    def get(self, key: bytes, *, at: int) -> KeyValue | None:
        for kv in reversed(self._versions.get(key, [])):
            if kv.mod_revision <= at:
                return kv if kv.version else None
        return None

    def live(self, prefix: bytes = b"", *, at: int | None = None) -> Changes:
        """The keys that exist at a revision, in order."""
        at = self.revision if at is None else at
        keys = sorted(key for key in self._versions if key.startswith(prefix))
        return tuple(kv for key in keys if (kv := self.get(key, at=at)) is not None)

    def keys_of(self, lease: int) -> tuple[bytes, ...]:
        return tuple(kv.key for kv in self.live() if kv.lease == lease)

    def wrote(self, kv: KeyValue) -> bool:
        """Whether exactly this version was written."""
        return kv in self._versions.get(kv.key, ())

    def digest(self) -> str:
        digest = Digest()
        digest.update(self.live())
        return digest.hexdigest()

    def effect(self, operation: Operation) -> Changes:
        """What the operation would change, if it came next."""
        match operation:
            case Write(parts, lease):
                changes = [self._next(key, value, lease) for key, value in parts]
            case Remove(prefix):
                changes = [self._next(kv.key, None) for kv in self.live(prefix)]
            case End(lease):
                changes = [self._next(key, None) for key in self.keys_of(lease)]
            case Grant() | Compact():
                changes = []
            case _:
                assert_never(operation)
        return tuple(kv for kv in changes if kv is not None)

    def _next(self, key: bytes, value: bytes | None, lease: int = 0) -> KeyValue | None:
        prev, revision = self.get(key, at=self.revision), self.revision + 1
        if value is None:
            return None if prev is None else KeyValue(key, b"", 0, revision, 0, 0)
        if prev is None:
            return KeyValue(key, value, revision, revision, 1, lease)
        return KeyValue(key, value, prev.create_revision, revision, prev.version + 1, lease)

    def apply(self, changes: Iterable[KeyValue]) -> None:
        """The next revision."""
        self.revision += 1
        for kv in changes:
            assert kv.mod_revision == self.revision, (kv, self.revision)
            self._versions.setdefault(kv.key, []).append(kv)

    def forget(self, before: int) -> None:
        """What is needed to answer for revisions from `before` on is kept."""
        for key, versions in list(self._versions.items()):
            older = [kv for kv in versions if kv.mod_revision <= before]
            kept = [kv for kv in versions if kv.mod_revision > before]
            if older and older[-1].version:
                kept.insert(0, older[-1])
            if kept:
                self._versions[key] = kept
            else:
                del self._versions[key]
