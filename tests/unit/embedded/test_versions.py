"""What compaction leaves over is freed, nothing else, and a record of which nothing is left is told."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from quoracy.engines.embedded.memory.key_index import keep
from quoracy.engines.embedded.memory.versions import Record, free_before
from quoracy.store.model import KeyValue
from tests.unit.embedded.test_key_index import deletion, version

HORIZON = 100


@given(
    count=st.integers(1, 12) | st.integers(120, 200),
    at=st.integers(1, 12) | st.integers(100, 200),
    is_deletion=st.booleans(),
    lives=st.booleans(),
    horizon=st.integers(1, 13) | st.integers(100, 201),
)
def test_what_is_freed_and_what_stays_is_the_whole_past(
    count: int, at: int, is_deletion: bool, lives: bool, horizon: int
) -> None:
    at = min(at, count)
    versions = [version(n) for n in range(1, count + 1)]
    if is_deletion:
        versions[at - 1] = deletion(at)
    record = Record(b"k", version(count + 1) if lives else None)
    for kv in versions:
        keep(record, kv)
    freed: list[KeyValue] = []
    gone = free_before([versions[at - 1]], {b"k": record}, horizon, freed)
    assert [*freed, *(record.past or ())] == versions
    # A deletion is kept for as long as it can be watched: in the compaction revision itself.
    assert len(freed) == at - 1 + (is_deletion and at < horizon)
    assert (record.past is None) == (len(freed) == count)
    assert gone == ([record] if record.past is None and not lives else [])


def test_before_the_version_that_is_now_all_of_the_past_is_freed() -> None:
    now = version(9)
    record = Record(b"k", now)
    for revision in range(1, 9):
        keep(record, version(revision))
    freed: list[KeyValue] = []
    assert free_before([now], {b"k": record}, HORIZON, freed) == []
    assert [kv.mod_revision for kv in freed] == list(range(1, 9))
    assert record.past is None


def test_nothing_is_freed_of_a_key_without_a_past_or_without_a_record() -> None:
    freed: list[KeyValue] = []
    record = Record(b"k", version(1))
    assert free_before([version(1)], {b"k": record}, HORIZON, freed) == []
    assert free_before([deletion(2)], {}, HORIZON, freed) == []
    assert freed == []
