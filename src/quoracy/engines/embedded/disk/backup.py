"""Backup and restore: a whole store in one file, written while the store is in use.

A backup holds every key and lease as of one revision, without history, and a digest of it all.  It has
the journal's format but is marked as a backup, so that it is not opened as a store by mistake.

Clients may remember revisions of the store from after the backup, which mean something else in the
restored store.  So a restored store starts `RESTORE_STEP` revisions after the backup, and everything
before that counts as compacted.  A watcher or cache that resumes from an old revision gets an error,
and reads anew.  [etcd#16028]
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from quoracy.directories import sync_directory
from quoracy.engines.embedded.committing.group import Batch
from quoracy.engines.embedded.disk.journal import Journal
from quoracy.engines.embedded.disk.lock_file import Ownership
from quoracy.engines.embedded.disk.off_loop import off_loop
from quoracy.errors import DataError, DataUnreadable
from quoracy.store.digest import Digest
from quoracy.store.model import KeyValue

if TYPE_CHECKING:
    from quoracy.engines.embedded.engine import EmbeddedStore

__all__ = ["RESTORE_STEP", "BackupReport", "Progress", "RestoreReport", "restore", "write_backup"]

RESTORE_STEP = 1_000_000_000

# Called with the number of keys done so far, and of all keys.
Progress = Callable[[int, int], None]

_PAGE_ROWS = 5000


class BackupReport(msgspec.Struct, frozen=True, gc=False):
    revision: int
    keys_count: int
    leases_count: int
    digest: str


class RestoreReport(msgspec.Struct, frozen=True, gc=False):
    """What was restored; `revision` is where the restored store starts."""

    backup_revision: int
    revision: int
    keys_count: int
    leases_count: int


async def write_backup(
    store: EmbeddedStore, path: Path, progress: Progress | None = None
) -> BackupReport:
    """Write a backup.  The file appears under its name only when it is complete and on disk."""
    # The name is unique, so that two backups to one path do not write to the same file.
    partial = Path(f"{path}.{os.urandom(4).hex()}.partial")
    with store.pinned() as revision:
        total = (await store.status()).keys_count
        leases = store.granted_leases()
        digest = Digest()
        journal = await off_loop(
            lambda: _create(path, partial), undo=lambda made: _abandon(made, partial)
        )
        try:
            done, after = 0, None
            for number in itertools.count(1):
                page = store.page(after, at=revision)
                if not page:
                    break
                after = page[-1].key
                # A lease can have ended since; its keys, still here, go with it soon after a restore.
                ended = {kv.lease for kv in page if kv.lease} - leases.keys()
                leases |= dict.fromkeys(ended, store.limits.lease_ttl_min_s)
                await off_loop(functools.partial(_write_page, journal, number, page, digest))
                done += len(page)
                if progress is not None:
                    progress(done, max(done, total))
            meta = {"base_revision": revision, "digest": digest.hexdigest(), "keys_count": done}
            await off_loop(lambda: _finish(journal, leases, meta))
        except BaseException:
            _abandon(journal, partial)
            raise
    await off_loop(lambda: _publish(journal, partial, path))
    return BackupReport(revision, done, len(leases), digest.hexdigest())


def restore(backup: str | Path, data: str | Path, *, progress: Progress | None = None) -> RestoreReport:
    """Make a new store at `data` from a backup.  Nothing that exists is overwritten."""
    backup, data = Path(backup), Path(data).expanduser().resolve()
    source = Journal.open_backup(backup)
    try:
        return _restore_from(source, data, progress)
    finally:
        source.abandon()


def _restore_from(source: Journal, data: Path, progress: Progress | None) -> RestoreReport:
    with Ownership.take(data):
        if data.exists():
            raise DataError(f"{data} exists already. Move it away first, or restore to another path.")
        return _copy(source, data, progress)


def _copy(source: Journal, data: Path, progress: Progress | None) -> RestoreReport:
    leases = dict(source.leases())
    backup_revision = source.revision_meta("base_revision")
    kvs = _read_backup(source)
    # A store has one row for each revision; a backup one for each page of keys.
    kvs.sort(key=lambda kv: kv.mod_revision)
    rows = [
        (revision, tuple(changes))
        for revision, changes in itertools.groupby(kvs, key=lambda kv: kv.mod_revision)
    ]
    partial = Path(f"{data}.partial")
    _remove(partial)
    _remove(data)  # it does not exist, but the log of one that was here before may
    target = Journal.open(partial)
    try:
        for start in range(0, len(rows), _PAGE_ROWS):
            target.append(rows[start : start + _PAGE_ROWS])
            if target.checkpoint_due:
                target.checkpoint()
            if progress is not None:
                done = min(start + _PAGE_ROWS, len(rows))
                progress(len(kvs) * done // len(rows), len(kvs))
        revision = backup_revision + RESTORE_STEP
        _finish(target, leases, {"base_revision": revision, "compact_revision": revision})
    except BaseException:
        _abandon(target, partial)
        raise
    _publish(target, partial, data)
    return RestoreReport(backup_revision, revision, len(kvs), len(leases))


def _read_backup(source: Journal) -> list[KeyValue]:
    """Everything a backup holds.  Raises `DataUnreadable` if its digest does not match."""
    kvs = list(itertools.chain.from_iterable(source.read()))
    digest = Digest()
    digest.update(kvs)
    if (digest.hexdigest(), len(kvs)) != (source.meta("digest"), source.meta("keys_count")):
        raise DataUnreadable(
            f"{source.path} is not what was backed up: {len(kvs)} keys with digest "
            f"{digest.hexdigest()}, expected {source.meta('keys_count')} with "
            f"{source.meta('digest')}. Use another backup."
        )
    return kvs


def _write_page(journal: Journal, number: int, page: list[KeyValue], digest: Digest) -> None:
    journal.append([(number, tuple(page))])
    if journal.checkpoint_due:
        journal.checkpoint()
    digest.update(page)


def _finish(journal: Journal, leases: dict[int, float], meta: dict[str, object]) -> None:
    batch = Batch()
    batch.leases.extend(leases.items())
    batch.meta.update(meta)
    journal.commit(batch)


def _create(path: Path, partial: Path) -> Journal:
    if path.exists():
        raise DataError(f"{path} exists already. Give the backup a new name.")
    return Journal.open(partial, kind="backup")


def _abandon(journal: Journal, partial: Path) -> None:
    journal.abandon()
    _remove(partial)


def _remove(path: Path) -> None:
    """Remove a data file with its logs: SQLite would apply a log left behind to the next file there."""
    for each in (path, Path(f"{path}-wal"), Path(f"{path}-shm"), Path(f"{path}-log")):
        each.unlink(missing_ok=True)


def _publish(journal: Journal, partial: Path, path: Path) -> None:
    """Give a complete file its name."""
    journal.close()
    partial.rename(path)
    sync_directory(path.parent)
