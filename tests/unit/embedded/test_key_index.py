"""The past of a key is the same whichever form it has; and short ones are nothing to the collector."""

from __future__ import annotations

import gc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quoracy.engines.embedded.memory.key_index import keep, version_at
from quoracy.engines.embedded.memory.versions import Record
from quoracy.store.model import KeyValue


def version(revision: int) -> KeyValue:
    return KeyValue(b"k", b"v", 1, revision, revision)


def deletion(revision: int) -> KeyValue:
    return KeyValue(b"k", b"", 0, revision, 0)


@given(
    count=st.integers(0, 12) | st.integers(100, 300),
    deleted=st.sets(st.integers(1, 12) | st.integers(100, 300)),
    at=st.integers(0, 14) | st.integers(95, 305),
    lives=st.booleans(),
)
def test_the_version_at_a_revision_is_the_last_until_then(
    count: int, deleted: set[int], at: int, lives: bool
) -> None:
    versions = [deletion(n) if n in deleted else version(n) for n in range(1, count + 1)]
    record = Record(b"k", version(count + 1) if lives else None)
    for kv in versions:
        keep(record, kv)
    if record.now is not None:
        versions.append(record.now)
    until = [kv for kv in versions if kv.mod_revision <= at]
    assert version_at(record, at) == (until[-1] if until and until[-1].version else None)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_short_past_is_looked_at_by_the_garbage_collector_once(count: int) -> None:
    record = Record(b"k", None)
    for revision in range(1, count + 1):
        keep(record, version(revision))
    gc.collect(0)
    assert not gc.is_tracked(record.past)
    assert not gc.is_tracked(record)
