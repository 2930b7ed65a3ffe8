"""What a sweep goes by, and how it lets go of that: by and by, and of all of it."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quoracy.engines.embedded.disk.sweep import Sweep, Unswept
from quoracy.engines.embedded.memory.versions import in_order, sorted_out
from quoracy.store.model import KeyValue
from tests.unit.embedded.test_key_index import deletion, version


def no_rest() -> None:
    pass


def of_keys(*kvs: KeyValue) -> dict[bytes, KeyValue]:
    return {b"%d" % number: kv for number, kv in enumerate(kvs)}


@given(st.lists(st.integers(1, 50), max_size=40), st.integers(0, 50), st.integers(1, 60))
def test_it_lets_go_of_everything_in_pieces(revisions: list[int], until: int, count: int) -> None:
    kvs = [deletion(at) if at % 3 == 0 else version(at) for at in revisions]
    sweep = Sweep(0, until, of_keys(*kvs))
    sweep.begin(until, no_rest)
    sweep.keep_too([], no_rest)
    assert len(sweep.left_until(until)) + len(sweep.buried) + len(sweep.later) == len(kvs)
    pieces = 1
    while sweep.let_go(count):
        pieces += 1
    assert pieces == max(-(-len(kvs) // count), 1)
    assert not [*sweep.newest, *sweep.buried, *sweep.later]
    assert not sweep.let_go(count)


def test_what_was_swept_whole_is_not_what_is_unswept() -> None:
    unswept = Unswept(0)
    kvs = [version(1), deletion(2), version(3), version(9)]
    freed = [version(1)]
    assert unswept.trimmed(freed, of_keys(*kvs)) == []
    assert unswept.count == 1 + 4
    sweep = unswept.sweep(8)
    assert unswept.count == 1
    sweep.begin(8, no_rest)
    sweep.keep_too([], no_rest)
    assert [kv.mod_revision for kv in sweep.left_until(8)] == [1, 3]
    assert [kv.mod_revision for kv in sweep.buried] == [2]
    sweep.after = 8
    unswept.done(sweep)
    assert unswept.swept == 8
    assert unswept.count == 1  # what was written later waits for the next
    while sweep.let_go(1):
        pass
    again = unswept.sweep(10)
    assert [kv.mod_revision for kv in again.newest.values()] == [9]


@pytest.mark.parametrize("count", [0, 1, 512, 513, 2000])
def test_who_has_many_to_sort_out_rests_now_and_then(count: int) -> None:
    rests = 0

    def rest() -> None:
        nonlocal rests
        rests += 1

    kvs = [version(at) for at in range(1, count + 1)]
    there, deletions, later = sorted_out(kvs, count, rest)
    assert (there, deletions, later) == (kvs, [], [])
    assert rests == -(-count // 512)
    assert sorted_out(kvs, count) == (kvs, [], [])


@given(st.lists(st.integers(1, 10**9)), st.sampled_from([1, 40, 600]))
def test_what_is_put_in_order_in_pieces_is_in_order(revisions: list[int], times: int) -> None:
    kvs = [version(at) for at in revisions * times]
    ordered, numbers = in_order(kvs, lambda: None)
    expected = sorted(kvs, key=lambda kv: kv.mod_revision)
    assert list(map(id, ordered)) == list(map(id, expected))  # those of one revision as they came
    assert numbers == [kv.mod_revision for kv in expected]


def test_who_has_many_to_put_in_order_does_so_in_pieces() -> None:
    looked_at = longest = 0

    class Version:
        """Tells when it is looked at."""

        def __init__(self, revision: int) -> None:
            self._revision = revision

        @property
        def mod_revision(self) -> int:
            nonlocal looked_at
            looked_at += 1
            return self._revision

    def rest() -> None:
        nonlocal looked_at, longest
        longest, looked_at = max(longest, looked_at), 0

    versions = [Version(at * 7919 % 8009) for at in range(8000)]
    in_order(versions, rest)  # type: ignore[arg-type]
    assert 0 < longest <= 2 * 512
    assert looked_at == 0  # after the last rest


def test_nothing_is_held_once_it_was_let_go_of() -> None:
    kv = version(1)
    count = sys.getrefcount(kv)
    sweep = Sweep(0, 5, {b"k": kv})
    sweep.begin(5, no_rest)
    sweep.keep_too([], no_rest)
    assert sys.getrefcount(kv) > count
    assert not sweep.let_go(10)
    assert sys.getrefcount(kv) == count
