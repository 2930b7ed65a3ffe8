"""`quoracy bench`: it measures, it tidies up, and its percentiles are right."""

from __future__ import annotations

import random

import pytest

from quoracy.cli.bench import Latencies
from tests.unit.cli.asking import Ask


@pytest.mark.parametrize("load", ["put", "range", "txn", "lease"])
def test_every_load_runs_and_leaves_nothing_behind(ask: Ask, load: str) -> None:
    ask("put", "mine", "v")
    said = ask("bench", load, "--seconds", "0.2", "--clients", "3", "-o", "json")
    assert (said.code, said.json["errors"]) == (0, {})
    assert said.json["requests"] > 0
    assert ask("get", "", "--prefix", "--keys-only").lines == ["mine"]
    assert ask("lease", "list").lines == []


def test_figures_are_shown_as_lines(ask: Ask) -> None:
    names = [row[0] for row in ask("bench", "--seconds", "0.1").rows]
    assert names == ["load", "requests", "rate", "p50", "p90", "p99", "p99.9", "mean", "max"]


def test_quantiles_are_within_one_percent() -> None:
    rng = random.Random(7)
    values = sorted(rng.lognormvariate(-7, 1) for _ in range(20_000))
    latencies = Latencies()
    for value in values:
        latencies.add(value)
    for fraction in (0.5, 0.9, 0.99, 0.999):
        exact = values[int(fraction * len(values)) - 1]
        assert latencies.quantile(fraction) == pytest.approx(exact, rel=0.011)
    assert latencies.max_s == values[-1]
