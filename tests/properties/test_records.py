"""Records in order, next to a sorted list of their keys, while chunks split and join."""

from __future__ import annotations

from bisect import bisect_left

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from quoracy.engines.embedded.memory.key_index import Record, SortedRecords
from quoracy.store.model import KeyRange

CHUNK_MAX = 16

_numbers = st.integers(0, 40 * CHUNK_MAX)
_counts = st.integers(1, 3 * CHUNK_MAX)


def _key(number: int) -> bytes:
    return b"%06d" % number


class _Machine(RuleBasedStateMachine):
    """Adds and removes by the dozen, so that chunks fill and empty."""

    @initialize(count=st.integers(0, 4 * CHUNK_MAX), step=st.integers(1, 5))
    def begin(self, count: int, step: int) -> None:
        self.model = [_key(number * step) for number in range(count)]
        self.all = {key: Record(key, None) for key in self.model}
        self.records = SortedRecords(reversed(self.all.values()), chunk_max=CHUNK_MAX)

    @rule(start=_numbers, count=_counts, step=st.integers(-3, 3).filter(bool))
    def add(self, start: int, count: int, step: int) -> None:
        for number in range(start, start + count * step, step):
            key = _key(abs(number))
            if key not in self.all:
                self.all[key] = Record(key, None)
                self.records.add(self.all[key])
        self.model = sorted(self.all)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), count=_counts, keep=st.integers(0, 50), backwards=st.booleans())
    def remove(self, data: st.DataObject, count: int, keep: int, backwards: bool) -> None:
        start = data.draw(st.integers(0, len(self.model) - 1))
        gone = [
            key for at, key in enumerate(self.model[start : start + count]) if not keep or at % keep
        ]
        for key in reversed(gone) if backwards else gone:
            self.records.remove(self.all.pop(key))
        self.model = sorted(self.all)

    @rule(start=_numbers, length=st.integers(-5, 4 * CHUNK_MAX) | st.none(), descending=st.booleans())
    def look(self, start: int, length: int | None, descending: bool) -> None:
        first = _key(start)
        end = None if length is None else _key(max(0, start + length))
        low = bisect_left(self.model, first)
        high = len(self.model) if end is None else bisect_left(self.model, end)
        expected = self.model[low : max(low, high)]
        keys = KeyRange(first, end)
        found = [record.key for record in self.records.walk(keys, descending=descending)]
        assert found == (expected[::-1] if descending else expected)
        assert self.records.count(keys) == len(expected)

    @invariant()
    def all_there(self) -> None:
        everything = KeyRange(b"", None)
        assert len(self.records) == len(self.model) == self.records.count(everything)
        walked = list(self.records.walk(everything))
        assert [record.key for record in walked] == self.model
        assert all(self.all[record.key] is record for record in walked)


TestSortedRecords = _Machine.TestCase


@pytest.mark.parametrize("backwards", [False, True])
def test_chunks_are_few_when_almost_all_went(*, backwards: bool) -> None:
    all = [Record(_key(number), None) for number in range(20 * CHUNK_MAX)]
    records = SortedRecords(chunk_max=CHUNK_MAX)
    for record in all:
        records.add(record)
    assert records.count(KeyRange.everything()) == len(all)  # asked for, they are in their places
    assert len(records._lasts) >= 20
    gone = [record for number, record in enumerate(all) if number % CHUNK_MAX]
    for record in reversed(gone) if backwards else gone:
        records.remove(record)
    assert len(records) == 20
    assert len(records._lasts) <= 20 // (CHUNK_MAX // 8)
