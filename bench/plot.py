"""The picture: puts by number of writers, opening time and memory by number of keys."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.results import duration

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["INK", "MUTED", "STYLE", "draw"]

INK = "#30343b"
MUTED = "#8a9099"
# What all pictures have in common.
STYLE: Any = {
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
}
_COLOURS = {
    "append + fdatasync": "#9aa3ad",
    "SQLite": "#d08a3c",
    "Quoracy": "#2563b0",
    "Quoracy, plain asyncio": "#7fb0e6",
}


def draw(results: Mapping[str, Any], caption: str, path: Path) -> None:
    """`results` as in the JSON file: it needs `puts` and `scale`."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    with plt.rc_context(STYLE):
        figure, (puts, opening, memory) = plt.subplots(
            1,
            3,
            figsize=(13, 4.4),
            width_ratios=(1.5, 1, 1),
            layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.08),
        )
        _draw_puts(puts, results["puts"])
        scale = results["scale"]
        _draw_opening(opening, scale["keys"], scale["open_s"])
        _draw_memory(memory, scale["keys"], scale["key_bytes"])
        figure.supxlabel(caption, fontsize=8, color=MUTED)
        figure.savefig(path, dpi=150)
        plt.close(figure)


def _draw_puts(axes: Axes, data: Mapping[str, Any]) -> None:
    rates, writers = data["rates"], data["writers"]
    lines = {name: rates["uvloop"][name] for name in ("append + fdatasync", "SQLite", "Quoracy")}
    lines["Quoracy, plain asyncio"] = rates["asyncio"]["Quoracy"]
    for name, line in lines.items():
        bold = name == "Quoracy"
        axes.plot(
            writers,
            line,
            marker="o",
            markersize=6 if bold else 4,
            linewidth=2.6 if bold else 1.6,
            color=_COLOURS[name],
            label=name,
            zorder=3 if bold else 2,
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(writers, [str(number) for number in writers])
    axes.set_ylim(1_000, 2 * max(map(max, lines.values())))
    axes.yaxis.set_major_formatter(_thousands)
    axes.set_title("Durable puts")
    axes.set_xlabel("concurrent writers; rows in a batch")
    axes.set_ylabel("puts per second")
    axes.grid(axis="y", color="#e6e8eb", linewidth=0.8)
    axes.legend(loc="lower right", fontsize=9)


def _draw_opening(axes: Axes, keys: list[int], seconds: list[float]) -> None:
    _draw_by_keys(axes, keys, seconds)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_ylim(min(seconds) / 3, 40)
    _draw_limit(axes, 15, "15 s, the most for 1M keys")
    axes.set_title("Time to open")
    axes.set_ylabel("seconds")
    for x, y in zip(keys, seconds, strict=True):
        axes.annotate(duration(y), (x, y), (-8, 4), textcoords="offset points", ha="right")


def _draw_memory(axes: Axes, keys: list[int], key_bytes: list[float]) -> None:
    _draw_by_keys(axes, keys, key_bytes)
    axes.set_ylim(0, 1200)
    _draw_limit(axes, 1024, "1 KiB, the most")
    axes.set_title("Memory for each key")
    axes.set_ylabel("bytes, resident")
    for x, y in zip(keys, key_bytes, strict=True):
        axes.annotate(f"{y:.0f} B", (x, y), (4, 8), textcoords="offset points", ha="left")


def _draw_by_keys(axes: Axes, keys: list[int], values: list[float]) -> None:
    axes.plot(keys, values, marker="o", linewidth=2.6, markersize=6, color=_COLOURS["Quoracy"])
    axes.set_xscale("log")
    axes.set_xlim(min(keys) / 6, max(keys) * 4)
    axes.set_xticks(keys, [_thousands(number, 0) for number in keys])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("keys, 24 bytes with values of 100")
    axes.grid(axis="y", color="#e6e8eb", linewidth=0.8)


def _draw_limit(axes: Axes, limit: float, text: str) -> None:
    axes.axhline(limit, color="#b4443c", linewidth=1.2, linestyle=(0, (4, 3)))
    axes.annotate(
        text,
        (1, limit),
        (0, 4),
        ("axes fraction", "data"),
        "offset points",
        ha="right",
        color="#b4443c",
    )


def _thousands(value: float, _: object) -> str:
    if value >= 1_000_000:
        return f"{value / 1_000_000:g}M"
    return f"{value / 1_000:g}k" if value >= 1_000 else f"{value:g}"
