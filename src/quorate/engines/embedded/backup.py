"""Backups: a whole store in one file, taken while it works; and the way back.

A backup holds every key and lease as of one revision, no history, and a digest of it all.  It has the
journal's own format but says that it is a backup, so that nobody opens it as a store by mistake.

A restore must not fool clients that remember the store as it was after the backup: it starts
`RESTORE_STEP` revisions later than the backup ended, and everything before that counts as compacted.  A
watcher or cache that comes back with an old revision is told so, and reads anew.  [etcd#16028]
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from quorate.engines.embedded.journal import Batch, Journal, sync_directory
from quorate.engines.embedded.ownership import Ownership
from quorate.errors import DataError, DataUnreadable
from quorate.store.digest import Digest
from quorate.store.model import KeyValue

if TYPE_CHECKING:
    from quorate.engines.embedded.engine import EmbeddedStore

__all__ = ["RESTORE_STEP", "BackupReport", "Progress", "RestoreReport", "restore", "write_backup"]

RESTORE_STEP = 1_000_000_000

# Called with the keys done so far and the keys there are.
Progress = Callable[[int, int], None]

_PAGE_ROWS = 5000


class BackupReport(msgspec.Struct, frozen=True, gc=False):
    revision: int
    keys_count: int
    leases_count: int
    digest: str


class RestoreReport(msgspec.Struct, frozen=True, gc=False):
    """What came back; `revision` is where the restored store starts."""

    backup_revision: int
    revision: int
    keys_count: int
    leases_count: int


async def write_backup(
    store: EmbeddedStore, path: Path, progress: Progress | None = None
) -> BackupReport:
    """Write a backup.  The file appears under its name only when it is complete and on disk."""
    partial = Path(f"{path}.partial")
    with store.pinned() as revision:
        total = (await store.status()).keys_count
        leases = store.granted_leases()
        digest = Digest()
        journal = await asyncio.to_thread(_create, path, partial)
        try:
            done, after = 0, None
            while page := store.page(after, at=revision):
                after = page[-1].key
                # A lease can have ended since; its keys, still here, go with it soon after a restore.
                ended = {kv.lease for kv in page if kv.lease} - leases.keys()
                leases |= dict.fromkeys(ended, store.limits.lease_ttl_min_s)
                await asyncio.to_thread(_write_page, journal, page, digest)
                done += len(page)
                if progress is not None:
                    progress(done, max(done, total))
            meta = {"base_revision": revision, "digest": digest.hexdigest(), "keys_count": done}
            await asyncio.to_thread(_finish, journal, leases, meta)
        except BaseException:
            _abandon(journal, partial)
            raise
    await asyncio.to_thread(_publish, journal, partial, path)
    return BackupReport(revision, done, len(leases), digest.hexdigest())


def restore(backup: str | Path, data: str | Path, *, progress: Progress | None = None) -> RestoreReport:
    """Make a new store at `data` from a backup.  Nothing that exists is overwritten."""
    backup, data = Path(backup), Path(data).expanduser().resolve()
    if not backup.exists():
        raise DataUnreadable(f"{backup} does not exist. Give the path of a backup.")
    with Ownership.take(data):
        if data.exists():
            raise DataError(f"{data} exists already. Move it away first, or restore to another path.")
        source = Journal.open(backup, kind="backup")
        try:
            return _copy(source, data, progress)
        finally:
            source.close()


def _copy(source: Journal, data: Path, progress: Progress | None) -> RestoreReport:
    partial = Path(f"{data}.partial")
    partial.unlink(missing_ok=True)
    total = source.versions_count()
    leases = dict(source.leases())
    backup_revision = source.revision_meta("base_revision")
    target = Journal.open(partial)
    try:
        done = 0
        for page in _pages(source.versions()):
            _write_page(target, page)
            done += len(page)
            if progress is not None:
                progress(done, total)
        digest = Digest()
        digest.update(source.versions(by_key=True))
        if digest.hexdigest() != source.meta("digest") or done != source.meta("keys_count"):
            raise DataUnreadable(
                f"{source.path} is not what was backed up: {done:,} keys with digest "
                f"{digest.hexdigest()}, expected {source.meta('keys_count'):,} with "
                f"{source.meta('digest')}. Use another backup."
            )
        revision = backup_revision + RESTORE_STEP
        _finish(target, leases, {"base_revision": revision, "compact_revision": revision})
    except BaseException:
        _abandon(target, partial)
        raise
    _publish(target, partial, data)
    return RestoreReport(backup_revision, revision, done, len(leases))


def _pages(kvs: Iterable[KeyValue]) -> Iterable[list[KeyValue]]:
    page: list[KeyValue] = []
    for kv in kvs:
        page.append(kv)
        if len(page) == _PAGE_ROWS:
            yield page
            page = []
    if page:
        yield page


def _write_page(journal: Journal, page: list[KeyValue], digest: Digest | None = None) -> None:
    batch = Batch()
    batch.changes.append(tuple(page))
    journal.commit(batch)
    journal.checkpoint_if_due()
    if digest is not None:
        digest.update(page)


def _finish(journal: Journal, leases: dict[int, float], meta: dict[str, object]) -> None:
    batch = Batch()
    batch.leases.extend(leases.items())
    batch.meta.update(meta)
    journal.commit(batch)


def _create(path: Path, partial: Path) -> Journal:
    if path.exists():
        raise DataError(f"{path} exists already. Give the backup a new name.")
    partial.unlink(missing_ok=True)
    return Journal.open(partial, kind="backup")


def _abandon(journal: Journal, partial: Path) -> None:
    # Not in a thread: when the task was cancelled, another await could be cancelled again.
    journal.close()
    partial.unlink(missing_ok=True)


def _publish(journal: Journal, partial: Path, path: Path) -> None:
    """Give a complete file its name."""
    journal.close()
    partial.rename(path)
    sync_directory(path.parent)
