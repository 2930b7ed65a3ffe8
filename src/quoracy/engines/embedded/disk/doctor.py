"""The doctor: is this data sound, and if not, what can be done?

Looks at everything and changes nothing: the file's structure, the checksum of every version, and
whether the versions, leases and revisions fit together the way the engine writes them.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from quoracy.engines.embedded.disk.backup import Progress
from quoracy.engines.embedded.disk.journal import Journal
from quoracy.engines.embedded.disk.lock_file import Ownership
from quoracy.engines.embedded.memory.leases import LeaseTable
from quoracy.engines.embedded.memory.state import State
from quoracy.errors import DataError, DataInUse, QuoracyError, StorageFailed

__all__ = ["Finding", "Report", "examine"]

_RESTORE = "Keep this file, and restore the newest backup: `quoracy restore BACKUP NEW_PATH`."


class Finding(msgspec.Struct, frozen=True, gc=False):
    """The result of one check; `remedy` says what to do if it failed."""

    ok: bool
    what: str
    remedy: str = ""


class Report(msgspec.Struct, frozen=True):
    path: str
    findings: tuple[Finding, ...]

    @property
    def healthy(self) -> bool:
        return all(finding.ok for finding in self.findings)


def examine(path: str | Path, *, progress: Progress | None = None) -> Report:
    """Check a store's data.  Raises `DataInUse` if a store has it open."""
    data = Path(path).expanduser().resolve()
    if not data.is_file():
        missing = Finding(False, f"{data} does not exist.", "Give the path of a store's data file.")
        return Report(str(data), (missing,))
    try:
        with Ownership.take(data):
            findings = _examine_file(data, progress)
    except DataInUse:
        raise  # that says nothing about the data
    except DataError as error:
        findings = [Finding(False, str(error), _RESTORE)]
    return Report(str(data), tuple(findings))


def _examine_file(data: Path, progress: Progress | None) -> list[Finding]:
    journal = Journal.open(data)
    findings = [Finding(True, "The file can be opened, and its format is known.")]
    try:
        complaints = journal.check_integrity()
        if complaints:
            summary = "; ".join(complaints[:3])
            findings.append(Finding(False, f"The file's structure is damaged: {summary}.", _RESTORE))
        else:
            findings.append(Finding(True, "The file's structure is sound."))
        findings += _examine_contents(journal, progress)
    finally:
        try:
            journal.close()
        except StorageFailed as error:
            findings.append(Finding(False, str(error), _RESTORE))
    return findings


def _examine_contents(journal: Journal, progress: Progress | None) -> list[Finding]:
    state = State(LeaseTable(now=0.0))
    try:
        total = journal.rows_count()
        history = []
        for changes in journal.read():
            history.append(changes)
            if progress is not None and len(history) % 10_000 == 0:
                progress(len(history), total)
        findings = [Finding(True, f"All {total:,} rows have the right checksum.")]
        state.leases.restore(journal.leases(), now=0.0)
        garbage = state.load(
            history,
            revision=journal.revision_meta("base_revision"),
            compact_revision=journal.revision_meta("compact_revision"),
            source=journal.path,
        )
        journal.timeline(newest=state.revision)
    except QuoracyError as error:
        return [Finding(False, str(error), _RESTORE)]
    if progress is not None:
        progress(total, total)
    size = journal.size()
    findings.append(
        Finding(
            True,
            f"Revision {state.revision:,}, compacted up to {state.compact_revision:,}; "
            f"{state.keys_count:,} keys, {len(state.leases):,} leases.",
        )
    )
    findings.append(
        Finding(
            True,
            f"{size.file_bytes:,} bytes on disk, {size.free_bytes:,} of them unused; {len(garbage):,} "
            "compacted versions still to be removed (the store does that when it runs).",
        )
    )
    return findings
