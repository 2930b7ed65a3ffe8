"""Phi accrual: how soon a dead peer is noticed, and how often a live one is taken for dead.

Heartbeats are simulated, a second apart, and arrive in three ways.  One detector watches each; every
threshold is judged by the same arrivals.  A fixed timeout that is as long as phi needs on average sees
them too.  Seeded: the same figures on every machine.
"""

from __future__ import annotations

import argparse
import bisect
import itertools
import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.plot import MUTED, STYLE
from bench.report import as_text
from bench.results import Section, Table, duration
from bench.rounds import Settings
from quoracy.membership.detectors import PhiDetector, PhiSettings

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Row", "draw", "measure", "run"]

THRESHOLDS = range(1, 13)
PAUSES_S = (0.0, 3.0)  # acceptable; 0 is the paper's detector, 3 what PhiSettings has unless told
_WARM_UP = 500
_DETECTION_EVERY = 50

_NOTE = """\
![Wrong suspicions an hour by detection time, for three kinds of arrivals](benchmarks/phi.png)

Simulated heartbeats, one a second, {hours:,.0f} hours of each kind. *Normal*: delays deviate by 70 ms.
*Heavy-tailed*: delays are lognormal (median 50 ms, sigma 1.2), in order over one connection. *Bursty*:
a quiet network, but about every two minutes the sender stalls, for 1.5 s on average and exponentially
distributed, and what is due meanwhile arrives at once. Detection is the mean silence until a peer that
died is suspected; a mistake is a suspicion that a later heartbeat proves wrong, and lasts until then.
The fixed timeout is as long as phi's detection beside it. "None" is none in all these hours.

On arrivals of one kind a timeout that is chosen well is as good as phi: both draw a line through the
same silences. What phi saves is the choosing, for each peer and each network, as the last table shows.
Only where delays are normal does a step of the threshold make mistakes ten times rarer. Against heavy
tails and stalls an acceptable pause buys more than a higher threshold."""


@dataclass(frozen=True, slots=True)
class Row:
    """One threshold on one kind of arrivals; rates are mistakes an hour, the rest seconds."""

    kind: str
    pause_s: float
    threshold: int
    detection_s: float
    mistakes_per_hour: float
    mistake_s: float
    fixed_mistakes_per_hour: float
    fixed_mistake_s: float
    hours: float


@dataclass(frozen=True, slots=True)
class Rhythm:
    """What one threshold makes of peers that beat differently, all with normal delays."""

    interval_s: float
    detection_s: float
    mistakes_per_hour: float


def _normal(rng: random.Random) -> Iterator[float]:
    return (max(0.0, rng.gauss(0.25, 0.07)) for _ in iter(int, 1))


def _heavy_tailed(rng: random.Random) -> Iterator[float]:
    return (rng.lognormvariate(-2.9957, 1.2) for _ in iter(int, 1))  # log(0.05)


def _bursty(rng: random.Random) -> Iterator[float]:
    stall_begins, stall_ends = rng.expovariate(1 / 120), 0.0
    sent = 0.0
    while True:
        while stall_begins <= sent:
            stall_ends = max(stall_ends, stall_begins + rng.expovariate(1 / 1.5))
            stall_begins += rng.expovariate(1 / 120)
        yield max(0.0, stall_ends - sent) + rng.uniform(0.0, 0.04)
        sent += 1.0


# Kind -> the delays of heartbeats that are sent at 0, 1, 2 and so on.
KINDS: dict[str, Callable[[random.Random], Iterator[float]]] = {
    "normal": _normal,
    "heavy-tailed": _heavy_tailed,
    "bursty": _bursty,
}


def arrivals(kind: str, count: int) -> list[float]:
    """When heartbeats arrive: in the order they are sent in, so one that is late delays the next."""
    moments, latest = [], 0.0
    for sent, delay in zip(range(count), KINDS[kind](random.Random(f"phi {kind}")), strict=False):
        latest = max(latest, sent + delay)
        moments.append(latest)
    return moments


def run(quick: bool) -> list[Row]:
    """All thresholds on all kinds of arrivals."""
    return [row for kind in KINDS for row in _judge(kind, arrivals(kind, _count(quick)))]


def rhythms(quick: bool, threshold: int = 8) -> list[Rhythm]:
    """Peers that beat every 0.2, 1 and 5 s, each with delays that deviate by 7 % of that."""
    found = []
    for interval_s in (0.2, 1.0, 5.0):
        moments = [interval_s * moment for moment in arrivals("normal", 2_000 if quick else 50_000)]
        detections, mistakes = _watch(moments, 0.0)
        rate = len(mistakes[threshold]) / _hours(moments)
        found.append(Rhythm(interval_s, statistics.fmean(detections[threshold]), rate))
    return found


def _judge(kind: str, moments: Sequence[float]) -> Iterator[Row]:
    hours, silences = _hours(moments), _silences(moments)
    for pause_s in PAUSES_S:
        detections, mistakes = _watch(moments, pause_s)
        for threshold in THRESHOLDS:
            detection_s = statistics.fmean(detections[threshold])
            wrong = mistakes[threshold]
            late = silences[bisect.bisect_left(silences, detection_s) :]
            yield Row(
                kind=kind,
                pause_s=pause_s,
                threshold=threshold,
                detection_s=detection_s,
                mistakes_per_hour=len(wrong) / hours,
                mistake_s=statistics.fmean(wrong or [0.0]),
                fixed_mistakes_per_hour=len(late) / hours,
                fixed_mistake_s=statistics.fmean([each - detection_s for each in late] or [0.0]),
                hours=hours,
            )


def _watch(
    moments: Sequence[float], pause_s: float
) -> tuple[dict[int, list[float]], dict[int, list[float]]]:
    """For each threshold: how long suspicions would take, and how long the wrong ones lasted."""
    detector = PhiDetector(PhiSettings(acceptable_pause_s=pause_s))
    detections: dict[int, list[float]] = {threshold: [] for threshold in THRESHOLDS}
    mistakes: dict[int, list[float]] = {threshold: [] for threshold in THRESHOLDS}
    for number, moment in enumerate(moments):
        if number > _WARM_UP:
            phi = detector.phi(moment)
            for threshold in THRESHOLDS:
                if phi < threshold:
                    break
                mistakes[threshold].append(moment - _reaches(detector, threshold))
        detector.heartbeat(moment)
        if number >= _WARM_UP and number % _DETECTION_EVERY == 0:
            for threshold in THRESHOLDS:
                detections[threshold].append(_reaches(detector, threshold) - moment)
    return detections, mistakes


def fixed_timeouts(quick: bool) -> dict[str, list[tuple[float, float]]]:
    """For each kind of arrivals: mistakes an hour with timeouts of 1.1 to 6 s."""
    curves = {}
    for kind in KINDS:
        moments = arrivals(kind, _count(quick))
        silences = _silences(moments)
        curves[kind] = [
            (tenths / 10, (len(silences) - bisect.bisect_left(silences, tenths / 10)) / _hours(moments))
            for tenths in range(11, 61)
        ]
    return curves


def _count(quick: bool) -> int:
    return 20_000 if quick else 300_000


def _hours(moments: Sequence[float]) -> float:
    return (moments[-1] - moments[_WARM_UP]) / 3_600


def _silences(moments: Sequence[float]) -> list[float]:
    return sorted(after - before for before, after in itertools.pairwise(moments[_WARM_UP:]))


def _reaches(detector: PhiDetector, threshold: int) -> float:
    moment = detector.reaches_at(float(threshold))
    assert moment is not None
    return moment


def measure(settings: Settings) -> Section:
    """The section of the document; its data is what `draw` takes."""
    settings.report("phi accrual")
    rows = run(settings.quick)
    return Section(
        name="phi",
        title="Phi accrual: detection time against mistakes",
        note=_NOTE.format(hours=rows[0].hours),
        tables=[*(_table(rows, kind) for kind in KINDS), _rhythm_table(rhythms(settings.quick))],
        data={"rows": [asdict(row) for row in rows], "fixed": fixed_timeouts(settings.quick)},
    )


def _table(rows: Sequence[Row], kind: str) -> Table:
    plain, patient = (
        [row for row in rows if (row.kind, row.pause_s) == (kind, pause_s)] for pause_s in PAUSES_S
    )
    return Table(
        [
            f"{kind}: threshold",
            "detection",
            "mistakes an hour",
            "lasting",
            "fixed timeout: mistakes an hour",
            "lasting",
            "with 3 s acceptable: detection",
            "mistakes an hour",
        ],
        [
            [
                str(row.threshold),
                f"{row.detection_s:.2f} s",
                _rate(row.mistakes_per_hour),
                duration(row.mistake_s) if row.mistakes_per_hour else "",
                _rate(row.fixed_mistakes_per_hour),
                duration(row.fixed_mistake_s) if row.fixed_mistakes_per_hour else "",
                f"{other.detection_s:.2f} s",
                _rate(other.mistakes_per_hour),
            ]
            for row, other in zip(plain, patient, strict=True)
        ],
    )


def _rhythm_table(rows: Sequence[Rhythm]) -> Table:
    return Table(
        [
            "heartbeats every",
            "phi 8: detection",
            "mistakes an hour",
            "timeout for the slowest",
        ],
        [
            [
                duration(row.interval_s),
                f"{row.detection_s:.2f} s",
                _rate(row.mistakes_per_hour),
                f"{rows[-1].detection_s:.2f} s",
            ]
            for row in rows
        ],
    )


def _rate(per_hour: float) -> str:
    return f"{per_hour:.3g}" if per_hour else "none"


_LINES = ((0.0, "phi", "#2563b0"), (3.0, "phi, 3 s acceptable pause", "#d08a3c"))


def draw(results: Mapping[str, Any], caption: str, path: Path) -> None:
    """`results`: the data of the section."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    rows = [Row(**row) for row in results["rows"]]
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(
            1,
            len(KINDS),
            figsize=(13, 4.4),
            sharey=True,
            layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.08),
        )
        for each, kind in zip(axes, KINDS, strict=True):
            _draw_kind(each, [row for row in rows if row.kind == kind], results["fixed"][kind])
        axes[0].set_ylabel("wrong suspicions an hour")
        axes[-1].legend(loc="upper right", fontsize=9)
        figure.supxlabel(caption, fontsize=8, color=MUTED)
        figure.savefig(path, dpi=150)
        plt.close(figure)


def _draw_kind(axes: Axes, rows: Sequence[Row], fixed: Sequence[tuple[float, float]]) -> None:
    floor = 0.3 / rows[0].hours  # "none" is drawn here, below one in all the hours
    axes.plot(
        [timeout_s for timeout_s, _ in fixed],
        [max(rate, floor) for _, rate in fixed],
        color="#ccd2d9",
        linewidth=5,
        label="fixed timeout",
    )
    for pause_s, label, colour in _LINES:
        line = [row for row in rows if row.pause_s == pause_s]
        times, rates = [row.detection_s for row in line], [row.mistakes_per_hour for row in line]
        rates = [max(rate, floor) for rate in rates]
        axes.plot(times, rates, marker="o", markersize=4, linewidth=1.6, color=colour, label=label)
        for row, rate in zip(line, rates, strict=True):
            if row.threshold in (1, 4, 8, 12):
                axes.annotate(
                    str(row.threshold),
                    (row.detection_s, rate),
                    (3, 5),
                    textcoords="offset points",
                    ha="left",
                    fontsize=8,
                    color=colour,
                )
    if any(rate == 0 for _, rate in fixed):
        axes.annotate(
            f"none in {rows[0].hours:,.0f} hours",
            (6, floor),
            (0, -13),
            textcoords="offset points",
            ha="right",
            fontsize=8,
            color=MUTED,
        )
    axes.set_yscale("log")
    axes.set_ylim(floor / 3, 3_600)
    axes.set_xlim(0.9, 6.1)
    axes.set_title(f"{rows[0].kind.capitalize()} arrivals")
    axes.set_xlabel("detection time, seconds; numbers are thresholds")
    axes.grid(axis="y", color="#e6e8eb", linewidth=0.8)


def main() -> None:
    """Print the tables; write the picture as well unless it is to be quick."""
    parser = argparse.ArgumentParser(prog="python -m bench.membership_phi", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small and short, to see that it works")
    options = parser.parse_args()
    section = measure(Settings(Path(), quick=options.quick))
    print(as_text([section], {}))
    if not options.quick:
        path = Path(__file__).parent.parent / "docs" / "benchmarks" / "phi.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        draw(section.data, "simulated heartbeats, one a second; 200 intervals remembered", path)
        print(f"Written: docs/benchmarks/{path.name}")


if __name__ == "__main__":
    main()
