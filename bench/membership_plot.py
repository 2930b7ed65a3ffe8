"""The picture of simulated clusters: load, detection and spreading by size, and false alarms."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.plot import MUTED, STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw"]

_BLUE, _LIGHT, _ORANGE, _RED = "#2563b0", "#7fb0e6", "#d08a3c", "#b4443c"
_COLOURS = {"SWIM": _ORANGE, "Lifeguard": _LIGHT, "ours": _BLUE}


def draw(data: Mapping[str, Any], caption: str, path: Path, *, crashes_min: int) -> None:
    """`data` is that of SWIM's part; an average of fewer crashes than `crashes_min` is not shown."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    with plt.rc_context(STYLE):
        figure, ((load, first), (spread, alarms)) = plt.subplots(
            2, 2, figsize=(12, 8.4), layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12)
        )
        members = [int(size) for size in data["calm"]]
        calm, crashes = list(data["calm"].values()), list(data["crashes"].values())
        _draw_load(load, members, calm, crashes)
        _draw_first(first, members, calm, crashes, crashes_min)
        _draw_spread(spread, members, crashes)
        _draw_alarms(alarms, [each for each in data["alarms"] if each["case"]["slow"]])
        figure.supxlabel(caption, fontsize=8, color=MUTED)
        figure.savefig(path, dpi=150)
        plt.close(figure)


def _by_size(axes: Axes, members: Sequence[int]) -> None:
    axes.set_xscale("log")
    axes.set_xlim(min(members) / 1.6, max(members) * 2.2)
    axes.set_xticks(members, [f"{number:,}" for number in members])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("members")
    axes.grid(axis="y", color="#e6e8eb", linewidth=0.8)


def _line(axes: Axes, x: Sequence[float], y: Sequence[float], colour: str, label: str) -> None:
    axes.plot(x, y, marker="o", linewidth=2.2, markersize=5, color=colour, label=label)


def _label(axes: Axes, x: Sequence[float], y: Sequence[float], above: bool = True) -> None:
    for at, value in zip(x, y, strict=True):
        axes.annotate(
            f"{value:.2f}",
            (at, value),
            (0, 7 if above else -14),
            textcoords="offset points",
            ha="center",
            fontsize=9,
        )


def _draw_load(axes: Axes, members: Sequence[int], calm: Sequence[Any], crashes: Sequence[Any]) -> None:
    quiet = [each["load"]["packets"] for each in calm]
    busy = [each["extra_packets"] for each in crashes]
    _line(axes, members, busy, _LIGHT, "for each crash: packets more, each piece ~ log n times")
    _line(axes, members, quiet, _BLUE, "calm: packets per second, a probe and an answer")
    _label(axes, members, quiet)
    _label(axes, members, busy)
    _by_size(axes, members)
    axes.set_ylim(0, 1.35 * max(busy))
    axes.set_title("What one member sends")
    axes.set_ylabel("packets")
    axes.legend(loc="upper left", fontsize=9)


def _draw_first(
    axes: Axes,
    members: Sequence[int],
    calm: Sequence[Any],
    crashes: Sequence[Any],
    crashes_min: int,
) -> None:
    rounds = [each["rounds_to_probe"] for each in calm]
    many = {
        size: each for size, each in zip(members, crashes, strict=True) if each["count"] >= crashes_min
    }
    axes.errorbar(
        [1.12 * size for size in many],
        [each["rounds_to_probe"] for each in many.values()],
        yerr=[2 * each["rounds_error"] for each in many.values()],
        marker="s",
        markersize=5,
        linestyle="none",
        capsize=4,
        color=_LIGHT,
        label="probed, in whole intervals, after real crashes",
    )
    axes.errorbar(
        members,
        rounds,
        yerr=[2 * each["rounds_error"] for each in calm],
        marker="o",
        linewidth=2.2,
        capsize=4,
        color=_BLUE,
        label="the same for any moment of a calm (bars: 2 standard errors)",
    )
    axes.axhline(math.e / (math.e - 1), color=_RED, linewidth=1.2, linestyle=(0, (4, 3)))
    axes.annotate(
        "e/(e-1) = 1.58, the SWIM paper's expectation",
        (1, math.e / (math.e - 1)),
        (0, -34),
        ("axes fraction", "data"),
        "offset points",
        ha="right",
        fontsize=9,
        color=_RED,
    )
    _by_size(axes, members)
    axes.set_ylim(0, 3.4)
    axes.set_title("First notice of a crash")
    axes.set_ylabel("probe intervals")
    axes.legend(loc="upper left", fontsize=9)


def _draw_spread(axes: Axes, members: Sequence[int], crashes: Sequence[Any]) -> None:
    suspected = [each["all_suspected"] for each in crashes]
    dead = [each["all_dead"] for each in crashes]
    _line(axes, members, suspected, _BLUE, "suspected: from the first who knows to the last")
    _line(axes, members, dead, _ORANGE, "dead: from the first to the last")
    _label(axes, members, suspected)
    _label(axes, members, dead, above=False)
    _by_size(axes, members)
    axes.set_ylim(-0.12 * max(suspected), 1.5 * max(suspected))
    axes.set_title("Until all know: a straight line is log n")
    axes.set_ylabel("probe intervals")
    axes.legend(loc="upper left", fontsize=9)


def _draw_alarms(axes: Axes, alarms: Sequence[Any]) -> None:
    width = 0.26
    for number, (name, colour) in enumerate(_COLOURS.items()):
        run = [(at, each[name]["fp"]) for at, each in enumerate(alarms) if name in each]
        places = [at + (number - 1) * width for at, _ in run]
        counts = [fp for _, fp in run]
        axes.bar(places, [max(0.5, each) for each in counts], width, color=colour, label=name)
        for at, value in zip(places, counts, strict=True):
            axes.annotate(
                f"{value:,}",
                (at, max(0.5, value)),
                (0, 2),
                textcoords="offset points",
                ha="center",
                fontsize=8,
            )
    labels = [
        f"{each['case']['members']:,}\n{each['case']['away']}\n"
        f"{each['case']['off_s']:g} s / {1000 * each['case']['on_s']:g} ms"
        for each in alarms
    ]
    axes.set_xticks(range(len(alarms)), labels, fontsize=7)
    axes.set_xlabel("members; 5 % of them away for / back for")
    axes.set_yscale("log")
    axes.set_ylim(0.5, 12 * max([1, *(each["SWIM"]["fp"] for each in alarms)]))
    axes.set_title("False positives by slow members")
    axes.set_ylabel("FP (the axis begins below 1)")
    axes.legend(loc="upper left", fontsize=9, ncols=3)
