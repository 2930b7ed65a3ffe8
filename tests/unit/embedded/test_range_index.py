"""The interval tree must give the same answers as looking at every range."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from quoracy.engines.embedded.watching.range_index import RangeIndex
from quoracy.store.model import KeyRange

# More lengths of prefixes than the index keeps apart, and keys below all of them.
deep = st.integers(0, 12).map(lambda length: b"a" * length)
keys = st.binary(min_size=1, max_size=2) | deep.filter(bool)
ranges = (
    st.builds(KeyRange, keys, st.none() | keys)
    | keys.map(KeyRange.exactly)
    | (deep | st.binary(max_size=2)).map(KeyRange.prefix)
)


@given(
    st.lists(st.tuples(st.booleans(), ranges, st.integers(0, 3)), max_size=60),
    st.lists(keys, min_size=1, max_size=10),
)
def test_finds_exactly_the_ranges_that_contain_a_key(
    steps: list[tuple[bool, KeyRange, int]], asked: list[bytes]
) -> None:
    index: RangeIndex[tuple[KeyRange, int]] = RangeIndex()
    there: set[tuple[KeyRange, int]] = set()
    for adding, keys, watcher in steps:
        value = (keys, watcher)
        if adding and value not in there:
            index.add(keys, value)
            there.add(value)
        elif not adding and value in there:
            index.remove(keys, value)
            there.remove(value)
    for key in asked:
        found = index.find(key)
        assert len(found) == len(set(found))
        assert set(found) == {value for value in there if value[0].contains(key)}


def test_a_key_is_found_without_looking_at_ranges_elsewhere() -> None:
    index: RangeIndex[int] = RangeIndex()
    for i in range(4096):
        index.add(KeyRange(b"%04d/" % i, b"%04d/zz" % i), i)
    looked_at = 0

    class Counted(bytes):
        def __lt__(self, other: object) -> bool:
            nonlocal looked_at
            looked_at += 1
            return bytes.__lt__(self, other)  # type: ignore[operator]

        __hash__ = bytes.__hash__

    assert index.find(Counted(b"0007/x")) == [7]
    # A balanced tree of 4,096 is 12 deep; random priorities make it about twice that.
    assert looked_at < 200
