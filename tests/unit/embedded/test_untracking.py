"""Tuples of versions are nothing to the garbage collector from the beginning, and all others are."""

from __future__ import annotations

import gc
import sys

import pytest

from quoracy.compiled import is_compiled
from quoracy.engines.embedded.memory.leases import LeaseTable
from quoracy.engines.embedded.memory.state import State
from quoracy.engines.embedded.memory.untracking import untracked
from quoracy.store.following import KeyWrite
from quoracy.store.model import KeyValue
from tests.unit.embedded.test_pasts import version

native = pytest.mark.skipif(not is_compiled(), reason="then they are left to the collector")


def made(*versions: KeyValue) -> tuple[KeyValue, ...]:
    return (*versions,)


@native
def test_a_tuple_of_versions_is_not_tracked() -> None:
    versions = made(version(1), version(2))
    assert gc.is_tracked(versions)
    assert untracked(versions) is versions
    assert not gc.is_tracked(versions)
    assert not gc.is_tracked(untracked(versions))  # once more is no harm


@native
def test_a_tuple_with_something_that_may_be_part_of_a_cycle_stays_tracked() -> None:
    cycle: list[object] = []
    both = (version(1), cycle)
    cycle.append(both)
    assert untracked(both) is both  # type: ignore[arg-type, comparison-overlap]
    assert gc.is_tracked(both)


def test_it_is_the_same_tuple_and_nobody_holds_more_of_it() -> None:
    versions = made(version(1), version(2))
    counts = sys.getrefcount(versions), sys.getrefcount(versions[0])
    for _ in range(100):
        assert untracked(versions) is versions
    assert (sys.getrefcount(versions), sys.getrefcount(versions[0])) == counts
    assert untracked(()) == ()


@native
def test_only_tuples_are_taken() -> None:
    with pytest.raises(TypeError, match="a tuple is wanted"):
        untracked([version(1)])  # type: ignore[arg-type]


@native
def test_writes_leave_nothing_for_the_collector_to_look_at() -> None:
    state = State(LeaseTable(now=0.0))
    gc.collect()
    gc.freeze()  # what is there by now is another matter
    try:
        for number in range(2_000):
            key, shared = b"%d" % (number // 2), b"shared"
            value = None if number % 2 else b"value"
            state.write((KeyWrite(key, value), KeyWrite(shared, b"%d" % number)))
        tracked = [each for each in gc.get_objects() if isinstance(each, tuple)]
        assert not [each for each in tracked if each and isinstance(each[0], KeyValue)]
    finally:
        gc.unfreeze()
