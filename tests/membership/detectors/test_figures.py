"""The figures of phi accrual: that what is counted is what happened."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from bench import membership_phi
from bench.membership_phi import KINDS, Row, arrivals
from bench.report import as_markdown
from bench.rounds import Settings

MACHINE = {"commit": "none", "date": "today"}


@pytest.fixture(scope="module", autouse=True)
def few() -> object:
    patch = pytest.MonkeyPatch()
    patch.setattr(membership_phi, "_count", lambda quick: 4_000)
    yield
    patch.undo()


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return membership_phi.run(quick=True)


def test_every_threshold_is_judged_on_every_kind_of_arrivals(rows: list[Row]) -> None:
    assert {(row.kind, row.pause_s, row.threshold) for row in rows} == {
        (kind, pause_s, threshold)
        for kind in ("normal", "heavy-tailed", "bursty")
        for pause_s in (0.0, 3.0)
        for threshold in range(1, 13)
    }


def test_a_higher_threshold_takes_longer_and_is_wrong_less_often(rows: list[Row]) -> None:
    for low, high in pairwise(rows):
        if low.threshold < high.threshold:
            assert low.detection_s < high.detection_s
            assert low.mistakes_per_hour >= high.mistakes_per_hour


def test_mistakes_on_normal_arrivals_are_about_as_rare_as_phi_says(rows: list[Row]) -> None:
    first, second = (
        row for row in rows if (row.kind, row.pause_s) == ("normal", 0.0) and row.threshold < 3
    )
    assert first.mistakes_per_hour == pytest.approx(360, rel=0.25)
    assert second.mistakes_per_hour == pytest.approx(36, rel=0.5)


def test_the_fixed_timeout_is_judged_by_the_same_silences(rows: list[Row]) -> None:
    for kind in KINDS:
        moments = arrivals(kind, 4_000)[500:]
        row = next(row for row in rows if (row.kind, row.pause_s, row.threshold) == (kind, 0.0, 2))
        late = [
            after - before for before, after in pairwise(moments) if after - before >= row.detection_s
        ]
        hours = (moments[-1] - moments[0]) / 3_600
        assert row.fixed_mistakes_per_hour == pytest.approx(len(late) / hours)
        assert row.fixed_mistake_s == pytest.approx(
            sum(silence - row.detection_s for silence in late) / max(1, len(late))
        )


def test_arrivals_are_in_order_and_the_same_each_time() -> None:
    for kind in KINDS:
        moments = arrivals(kind, 2_000)
        assert moments == sorted(moments) == arrivals(kind, 2_000)
        assert all(moment >= sent for sent, moment in enumerate(moments))


def test_the_section_has_a_table_for_each_kind_and_one_of_rhythms() -> None:
    section = membership_phi.measure(Settings(Path("unused"), quick=True))
    assert [len(table.rows) for table in section.tables] == [12, 12, 12, 3]
    page = as_markdown([section], MACHINE)
    assert "| heavy-tailed: threshold" in page
    assert "(benchmarks/phi.png)" in page
