"""What revisions wrote, kept in the least room, is what comes out."""

from __future__ import annotations

from quoracy.engines.embedded.memory.revision_log import RevisionLog
from quoracy.store.model import KeyValue


def _kv(key: bytes, revision: int) -> KeyValue:
    return KeyValue(key, b"", revision, revision, 1, 0)


def test_what_was_noted_comes_out_by_revision_and_gaps_are_told() -> None:
    log = RevisionLog(2)
    one, several = _kv(b"a", 2), [_kv(b"%d" % number, 4) for number in range(5)]
    for kv in [one, *several]:
        log.note(kv)
    log.filled()
    assert (log.first, log.newest) == (2, 4)
    assert [log.changes(revision) for revision in (2, 3, 4)] == [(one,), (), tuple(several)]
    assert list(log.gaps(0)) == [3]
    assert list(log.gaps(3)) == []
    assert list(log.since(2)) == several


def test_a_transaction_under_way_can_be_seen_and_stays_when_it_ends() -> None:
    log = RevisionLog(2)
    log.append_one(_kv(b"a", 2))
    changes = [_kv(b"b", 3)]
    log.begin(changes)
    changes.append(_kv(b"c", 3))
    assert list(log.since(2)) == changes
    log.end()
    changes.append(_kv(b"d", 3))  # whoever began it may use its list for something else
    assert [kv.key for kv in log.since(2)] == [b"b", b"c"]


def test_what_is_dropped_moves_the_first_revision() -> None:
    log = RevisionLog(2)
    for revision in (2, 3, 4):
        log.append([_kv(b"a", revision)])
    assert [changes[0].mod_revision for changes in log.oldest(2)] == [2, 3]
    log.drop(2)
    assert (log.first, log.newest, log.changes(4)) == (4, 4, (_kv(b"a", 4),))
