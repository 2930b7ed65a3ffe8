"""How old is a revision?  The samples answer within a tenth, and never too early."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from quoracy.engines.embedded.retention import Ages, Retention


@given(st.lists(st.tuples(st.floats(0.01, 30.0), st.integers(0, 5)), min_size=1, max_size=200))
def test_nothing_young_is_called_old_and_nothing_old_is_forgotten(
    steps: list[tuple[float, int]],
) -> None:
    ages = Ages(60.0)
    now, revision = 0.0, 1
    newest_at: list[tuple[float, int]] = []
    for pause, writes in steps:
        now += pause
        revision += writes
        newest_at.append((now, revision))
        expired = ages.expired(revision, now=now)
        # It was the newest revision at some moment at least 60 s ago ...
        assert expired == 0 or any(r >= expired for at, r in newest_at if at <= now - 60.0)
        # ... and what was the newest 66 s ago, plus the pause between two looks, is old.
        surely_old = [r for at, r in newest_at if at <= now - 66.0 - 30.0]
        assert expired >= max(surely_old, default=0)


def test_the_samples_stay_few() -> None:
    ages = Ages(60.0)
    for tick in range(100_000):
        ages.expired(tick, now=tick * 0.1)
    assert len(ages._samples) <= 12


def test_retention_is_on_by_default_and_can_be_turned_off() -> None:
    assert Retention().enabled
    assert not Retention(revisions_max=None, age_max_s=None).enabled
