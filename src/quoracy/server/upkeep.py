"""Work on data that no server has open: examine it, copy it out, bring a copy back."""

from __future__ import annotations

from pathlib import Path

from quoracy.engines.embedded.disk.backup import BackupReport, Progress, RestoreReport
from quoracy.engines.embedded.disk.backup import restore as restore_data
from quoracy.engines.embedded.disk.doctor import Report
from quoracy.engines.embedded.disk.doctor import examine as examine_data
from quoracy.engines.embedded.retention import Retention
from quoracy.engines.opening import open_embedded
from quoracy.errors import DataUnreadable
from quoracy.server.event_loop import run

__all__ = ["backup", "examine", "restore"]

_KEEP_EVERYTHING = Retention(revisions_max=None, age_max_s=None)


def examine(data: Path, *, progress: Progress | None = None) -> Report:
    """Check a data file without changing it."""
    _require(data)
    return examine_data(data, progress=progress)


def backup(data: Path, file: Path, *, progress: Progress | None = None) -> BackupReport:
    """Copy a store that no process has open into one file."""
    _require(data)
    return run(_backup(data, file, progress))


def restore(file: Path, data: Path, *, progress: Progress | None = None) -> RestoreReport:
    """Make a new store from a backup."""
    return restore_data(file, data, progress=progress)


async def _backup(data: Path, file: Path, progress: Progress | None) -> BackupReport:
    # Whoever copies a store must not compact its history by the way.
    async with open_embedded(f"sqlite:{data}", retention=_KEEP_EVERYTHING) as store:
        return await store.backup(file, progress=progress)


def _require(path: Path) -> None:
    # Opening creates what is not there; here that could only be a misspelt path.
    if not path.is_file():
        raise DataUnreadable(f"{path} is not a file. Give the path of a data file.")
