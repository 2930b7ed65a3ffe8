"""What must hold in a process whose disk failed, judged by what it told."""

from __future__ import annotations

from collections.abc import Sequence

from tests.faults.judge import Ledger
from tests.faults.reports import Acknowledged, Asked, Failed, Note, Read, Report

__all__ = ["check_after_failure", "notes"]


def notes(reports: Sequence[Report]) -> dict[str, Note]:
    return {report.name: report for report in reports if isinstance(report, Note)}


def check_after_failure(reports: Sequence[Report]) -> None:
    """Writing ended once and for all; reading went on, with exactly what was acknowledged."""
    ledger = Ledger(reports)
    failures = [report for report in reports if isinstance(report, Failed)]
    assert failures, "nothing failed"
    first = reports.index(failures[0])
    # Writes that were on disk before may hear of it a little later; none that was asked for later may.
    late = {report.id for report in reports[first:] if isinstance(report, Asked)}
    done = {report.id for report in reports if isinstance(report, Acknowledged)}
    assert not late & done, f"asked for after the failure and acknowledged: {late & done}"
    assert {failure.kind for failure in failures} <= {"Indeterminate", "StorageFailed"}
    assert failures[-1].kind == "StorageFailed", "a late write must be refused clearly"
    assert "stopped taking writes" in failures[-1].error
    assert "doctor" in failures[-1].error

    told = notes(reports)
    acknowledged = max(ledger.made)
    (read,) = [report for report in reports if isinstance(report, Read)]
    assert read.revision == acknowledged
    assert max(ledger.seen) == acknowledged, "the watch is not where the acknowledgements are"
    assert told["digest"].number == acknowledged
    assert told["kept lease"].number > 0
    assert told["failed alarm"].number == 1
    for name in ("delete", "compact", "grant", "revoke"):
        assert told[name].text == "StorageFailed", name
    keys = [kv.key for kv in read.kvs]
    assert b"l/1" in keys, "the key of a lease that was kept alive is gone"
    assert b"l/2" in keys, "a lease ended although nothing could be written"
