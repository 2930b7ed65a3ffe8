"""Freeing what compaction left over goes in slices, which may end inside of a revision."""

from __future__ import annotations

from quoracy.engines.embedded.memory.leases import LeaseTable
from quoracy.engines.embedded.memory.state import State
from quoracy.store.model import Delete, KeyRange, KeyValue, Put, Range, Txn

KEYS = [b"%02d" % number for number in range(10)]


def filled() -> State:
    """Ten keys that one transaction wrote and another deleted, and a key that stays."""
    state = State(LeaseTable(now=0.0))
    state.execute(Txn(then=tuple(Put(key, b"there") for key in KEYS)))
    state.execute(Txn(then=tuple(Delete(key) for key in KEYS)))
    state.execute(Put(b"stays", b"1"))
    state.execute(Put(b"stays", b"2"))
    return state


def all_trimmed(state: State) -> list[list[KeyValue]]:
    slices = []
    while state.trim_pending:
        slices.append(state.trim(versions_max=3))
    return slices


def test_a_slice_goes_through_part_of_a_revision() -> None:
    state = filled()
    state.compact(state.revision)
    slices = all_trimmed(state)
    # Three keys at a time, of which each leaves what was written and its deletion.
    assert max(map(len, slices)) <= 6
    freed = [(kv.key, kv.version) for each in slices for kv in each]
    assert sorted(freed) == sorted([(key, at) for key in KEYS for at in (0, 1)] + [(b"stays", 1)])
    assert state.history_bytes == 0


def test_what_was_gone_through_in_part_is_not_trimmed_yet() -> None:
    state = filled()
    state.compact(state.revision)
    before = state.trimmed_until
    state.trim(versions_max=3)
    assert state.trimmed_until == before
    for _ in range(3):
        state.trim(versions_max=3)
    assert state.trimmed_until > before


def test_the_compaction_revision_keeps_its_deletions_until_the_next_one() -> None:
    state = filled()
    deleted_at = state.revision - 2
    state.compact(deleted_at)
    all_trimmed(state)
    assert [kv.version for kv in state.changes(deleted_at)] == [0] * len(KEYS)
    state.compact(state.revision)
    freed = [kv for each in all_trimmed(state) for kv in each]
    assert sorted(kv.key for kv in freed if not kv.version) == KEYS
    assert state.history_bytes == 0


def test_compaction_may_go_on_while_a_revision_is_gone_through() -> None:
    state = filled()
    state.compact(state.revision - 1)
    state.trim(versions_max=13)  # all that was written, and three deletions
    for key in KEYS[:5]:
        state.execute(Put(key, b"again"))
    state.compact(state.revision)
    all_trimmed(state)
    found = state.range(Range(KeyRange.everything()), newest=state.revision)
    assert [kv.key for kv in found.kvs] == [*KEYS[:5], b"stays"]
    assert state.history_bytes == 0
