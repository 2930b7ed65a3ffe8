"""Lease time, tick by tick, on readings the test makes up."""

from __future__ import annotations

import pytest

from quoracy.engines.embedded.memory.leases import STALL_S, LeaseTable
from quoracy.errors import LeaseExists, LeaseNotFound
from quoracy.store.model import LeaseId

A, B = LeaseId(1), LeaseId(2)
TICK_S = 0.25  # exact in binary, so that the sums below are


def pass_time(table: LeaseTable, start: float, seconds: float) -> list[LeaseId]:
    due: list[LeaseId] = []
    for tick in range(1, round(seconds / TICK_S) + 1):
        due += table.due(now=start + tick * TICK_S)
    return due


def test_a_lease_is_due_after_its_time_and_not_before() -> None:
    table = LeaseTable(now=0.0)
    table.grant(A, 2.0, now=0.0)
    assert pass_time(table, 0.0, 2.0 - TICK_S) == []
    assert table.due(now=2.0) == [A]


def test_a_keep_alive_between_ticks_counts_from_its_own_moment() -> None:
    table = LeaseTable(now=0.0)
    table.grant(A, 2.0, now=0.0)
    pass_time(table, 0.0, 1.0)
    table.keep_alive(A, now=1.2)
    assert pass_time(table, 1.2, 2.0 - TICK_S) == []
    assert table.due(now=3.2) == [A]


def test_of_a_stall_only_its_beginning_counts() -> None:
    table = LeaseTable(now=0.0)
    table.grant(A, 2.0, now=0.0)
    pass_time(table, 0.0, 1.0)
    assert table.due(now=1000.0) == []
    assert table.remaining(A, now=1000.0) == (2.0, 1.0 - STALL_S)
    assert table.due(now=1000.0 + 1.0 - STALL_S) == [A]


def test_a_clock_that_goes_backwards_ends_nothing() -> None:
    table = LeaseTable(now=1000.0)
    table.grant(A, 2.0, now=1000.0)
    assert table.due(now=0.0) == []
    assert table.remaining(A, now=0.0) == (2.0, 2.0)


def test_a_lease_that_never_stops_stalling_still_ends() -> None:
    table = LeaseTable(now=0.0)
    table.grant(A, 2.0, now=0.0)
    due = [lease for stall in range(1, 5) for lease in table.due(now=stall * 60.0)]
    assert due == [A]


def test_an_id_granted_anew_does_not_inherit_the_old_deadline() -> None:
    table = LeaseTable(now=0.0)
    table.grant(A, 2.0, now=0.0)
    table.end(A)
    table.grant(A, 4.0, now=0.0)
    assert pass_time(table, 0.0, 4.0 - TICK_S) == []
    assert table.due(now=4.0) == [A]
    assert table.due(now=4.25) == []


def test_leases_are_due_in_the_order_of_their_deadlines() -> None:
    table = LeaseTable(now=0.0)
    table.grant(A, 3.0, now=0.0)
    table.grant(B, 2.0, now=0.0)
    assert pass_time(table, 0.0, 3.0) == [B, A]


def test_a_tick_looks_only_at_leases_that_could_be_due() -> None:
    table = LeaseTable(now=0.0)
    for lease in range(1, 10_001):
        table.grant(LeaseId(lease), 10.0, now=0.0)
    heap = list(table._heap)
    pass_time(table, 0.0, 9.0)
    assert table._heap == heap


def test_keys_belong_to_one_lease_and_come_back_in_order() -> None:
    table = LeaseTable(now=0.0)
    table.grant(A, 2.0, now=0.0)
    for key in (b"b", b"a", b"c"):
        table.attach(A, key)
    table.detach(A, b"c")
    assert table.keys(A) == (b"a", b"b")
    assert table.end(A) == [b"a", b"b"]
    with pytest.raises(LeaseNotFound):
        table.keep_alive(A, now=0.0)


def test_an_id_that_is_taken_is_refused() -> None:
    table = LeaseTable(now=0.0)
    table.grant(A, 2.0, now=0.0)
    with pytest.raises(LeaseExists):
        table.grant(A, 2.0, now=0.0)


def test_of_many_that_come_up_together_only_so_many_are_looked_at() -> None:
    table = LeaseTable(now=0.0)
    for lease in range(1, 101):
        table.grant(LeaseId(lease), 2.0, now=0.0)
    pass_time(table, 0.0, 1.75)
    found: list[int] = []
    for _ in range(4):
        assert table.is_any_due or not found
        found.append(len(table.due(now=2.0, at_most=25)))
    assert found == [25, 25, 25, 25]
    assert not table.is_any_due
