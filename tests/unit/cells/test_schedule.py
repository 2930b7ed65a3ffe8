"""Plans of faults: a seed gives one plan, and all kinds of faults have their turn."""

from __future__ import annotations

import pytest

from tests.cells.schedule import KINDS, PUTS_OFF_LAPSES, make_plan

_HOSTS = ("h1", "h2", "h3")


def test_a_seed_gives_the_same_plan_again() -> None:
    assert make_plan(7, _HOSTS) == make_plan(7, _HOSTS)
    assert len({str(make_plan(seed, _HOSTS)) for seed in range(100)}) > 90


def test_every_kind_of_fault_has_its_turn_and_its_time() -> None:
    faults = [fault for seed in range(500) for fault in make_plan(seed, _HOSTS).faults]
    assert {fault.kind for fault in faults} == set(KINDS)
    for fault in faults:
        least, most = KINDS[fault.kind]
        assert least <= fault.for_s <= most
        assert fault.host in (*_HOSTS, "leader", "follower")
    assert {fault.host for fault in faults} == {*_HOSTS, "leader", "follower"}


def test_faults_begin_in_order_after_a_second() -> None:
    for seed in range(200):
        times = [fault.at_s for fault in make_plan(seed, _HOSTS).faults]
        assert times[0] == 1.0
        assert times == sorted(times)


def test_without_nodes_no_node_is_broken() -> None:
    kinds = {f.kind for seed in range(300) for f in make_plan(seed, _HOSTS, plain=True).faults}
    assert not kinds & {"kill-node", "stop-node", "cut-node", "clock-step", "stop-holder"}


@pytest.mark.parametrize("kind", sorted(PUTS_OFF_LAPSES))
def test_what_puts_off_lapses_is_a_fault(kind: str) -> None:
    assert kind in KINDS
