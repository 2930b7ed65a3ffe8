"""The benchmark of membership: clusters in a simulator.  No test asks how fast it runs."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from bench import membership_page, report
from bench.membership import measure_swim, section
from bench.membership_false import VARIANTS, Alarms, Case, count_alarms
from bench.membership_load import Calm, Crashes, Load, Plan, calm, watch_crashes
from bench.rounds import Settings

LOAD = Load(packets=2.0, packet_bytes=30.0, streams=0.01, stream_bytes=0.1)


def test_a_calm_cluster_sends_a_probe_and_an_answer_each_interval() -> None:
    found = calm(Plan(members=16, calm_s=120.0, crashes=0, seeds=0))
    assert found.load.packets == pytest.approx(2.0, rel=0.02)
    assert 1.2 < found.rounds_to_probe < 2.0
    assert found.simulated_s == 125.0


def test_crashes_are_watched_until_everyone_knows_them() -> None:
    found = watch_crashes(Plan(members=12, calm_s=0.0, crashes=2, seeds=2))
    assert found.count == 4
    assert 0 < found.first_probe < found.first_suspected < found.first_dead
    assert found.first_suspected == pytest.approx(found.first_probe + 1.0, abs=0.6)
    assert 4 < found.extra_packets < 40
    assert found.extra_bytes > 4 * 10


def test_slow_members_do_harm_without_lifeguard_and_none_with_it() -> None:
    case = Case("slow", members=16, seconds=60.0, slow=0.05, off_s=16.0, on_s=0.1)
    assert case.slow_count == 1
    plain, ours = (count_alarms(case, VARIANTS[name]) for name in ("SWIM", "ours"))
    assert plain.fp > 20 * max(1, ours.fp)
    assert plain.fp >= plain.fp_at_healthy > 0


def test_a_process_that_stands_still_does_less_harm_than_one_that_is_deaf() -> None:
    found = [
        count_alarms(
            Case("slow", 16, 120.0, slow=0.05, away=away, off_s=16.0, on_s=0.001), VARIANTS["SWIM"]
        )
        for away in ("blocked", "stopped")
    ]
    assert found[0].fp > found[1].fp


def test_a_calm_cluster_raises_no_alarm() -> None:
    case = Case("calm", members=16, seconds=60.0)
    assert count_alarms(case, VARIANTS["SWIM"]) == Alarms(0, 0, 0)


def test_a_quick_run_has_tables_goals_and_data_for_a_file(tmp_path: Path) -> None:
    made = measure_swim(Settings(tmp_path, quick=True))
    assert [len(table.rows) for table in made.tables] == [2, 2, 11]
    assert {len(row) - len(table.columns) for table in made.tables for row in table.rows} == {0}
    text = report.as_text([made], {})
    for word in ("64 members", "20% loss, datagrams only", "at least 20", "e/(e-1)"):
        assert word in text
    assert json.loads(json.dumps(made.data))["calm"]["16"]["load"]["packets"] == pytest.approx(2, 0.02)


def made_up(spreads: tuple[float, ...]) -> tuple[dict[int, Calm], dict[int, Crashes]]:
    sizes = (16, 128, 1_024)[: len(spreads)]
    calms = {size: Calm(LOAD, 1.6, 0.01, simulated_s=30.0, processor_s=2.0) for size in sizes}
    crashes = {
        size: Crashes(3, 1.6, 0.1, 1.0, 2.0, spread, 7.0, 0.1, 20.0, 300.0)
        for size, spread in zip(sizes, spreads, strict=True)
    }
    return calms, crashes


def test_goals_are_held_against_what_was_found() -> None:
    calms, crashes = made_up((0.1, 0.3, 0.7))
    case = Case("slow", 16, 60.0, slow=0.05, off_s=8.0, on_s=0.001)
    alarms = [
        (case, {"SWIM": Alarms(9, 90, 80), "Lifeguard": Alarms(1, 3, 2), "ours": Alarms(1, 3, 2)})
    ]
    made = section(calms, crashes, alarms)
    reached = [(round(target.value, 2), target.met) for target in made.targets]
    assert reached == [
        (1.0, True),  # packets
        (1.0, True),  # bytes
        (1.6, True),  # the first probe
        (2.0, False),  # spreading: twice as much is added by a doubling of large clusters
        (30.0, True),  # false positives
        (4.0, True),  # a minute
    ]
    machine = dict.fromkeys(("Python", "commit", "date", "processor"), "here")
    page = membership_page.text_of([made], machine)
    for word in ("1.58", "Lifeguard", "1,024 members", "at least 20", "benchmarks/membership.png"):
        assert word in page


def test_spreading_is_judged_by_what_a_doubling_adds() -> None:
    calms, crashes = made_up((0.1, 0.3, 0.5))
    spreads = [each.all_suspected for each in crashes.values()]
    assert len({round(later - now, 6) for now, later in itertools.pairwise(spreads)}) == 1
    (target,) = [each for each in section(calms, crashes, []).targets if "doubling" in each.what]
    assert target.value == pytest.approx(1.0)
    assert target.met
