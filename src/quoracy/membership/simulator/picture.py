"""A run as one picture: members as rows, time to the right, how they were seen as colours.  Plain SVG.

Beside what the members believed it shows what was true: a cross where a process ended, a triangle where
it began again, a diamond where it left, a line under the row while it was stopped or slow, and bands
over all rows while the network was parted or lossy.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

from quoracy.membership.simulator.drawing import (
    COLOURS,
    INK,
    MARGIN,
    TRUTH,
    Sign,
    cut_spans,
    document,
    element,
    legend,
    shortened,
    shown,
    sign,
    spans_of,
    text,
    title_of,
)
from quoracy.membership.simulator.faults import Crash, Join, Leave, Restart, describe
from quoracy.membership.simulator.story import Level, Story

__all__ = ["picture"]

_WIDTH = 1_200.0
_LABEL_CHAR = 7.2
_LABEL_STEP = 13.0  # labels closer than this would touch
_BAND = "#56799c"
_LANES_MAX = 4
_SIGN_LABELS = {"cross": "ended", "triangle": "began again", "diamond": "said goodbye"}
_SIGNS = {Crash: "cross", Restart: "triangle", Join: "triangle", Leave: "diamond"}


def picture(story: Story) -> str:
    """The picture as SVG.

    >>> from quoracy.membership.simulator.story import tell
    >>> from quoracy.membership.simulator.swim_cluster import swim_cluster
    >>> cluster = swim_cluster(3, seed=1)
    >>> cluster.run(until=5.0)
    >>> picture(tell(cluster)).startswith('<svg xmlns="http://www.w3.org/2000/svg"')
    True
    """
    frame = _Frame(story)
    signs: list[Sign] = [
        (partial(sign, shape, size=5.0), label) for shape, label in _SIGN_LABELS.items()
    ]
    signs.append((lambda x, y: _bar(x - 7, y - 1.5, 14, 3.5), "stopped or slow"))
    parts = [
        text(title_of(story), MARGIN, 36, font_size=20, font_weight="600"),
        *legend(62.0, signs),
        *_rows(story, frame),
        *_bands(frame),
        *_truth(story, frame),
        *_axis(frame),
    ]
    return document(_WIDTH, frame.height, parts)


class _Frame:
    """Where things are; labels of bands are in lanes above the rows, so that none covers another."""

    def __init__(self, story: Story) -> None:
        self.seconds = max(story.seconds, 1e-9)
        self.names = shown(story)
        self.row = min(24.0, max(5.0, 640.0 / len(self.names)))
        self.left = MARGIN + min(220.0, _LABEL_CHAR * max(map(len, self.names))) + 10
        self.right = _WIDTH - MARGIN
        ends: list[float] = []  # of the last label in each lane
        self.bands: list[tuple[float, float, str, int | None]] = []
        for start, end, fault in cut_spans(story):
            label = describe(fault).partition(" until ")[0]
            x = self.x(start)
            lane = next((lane for lane, taken in enumerate(ends) if taken <= x), len(ends))
            if lane < _LANES_MAX:
                ends[lane : lane + 1] = [x + 7.5 * len(label) + 14]
            self.bands.append((x, self.x(end), label, lane if lane < _LANES_MAX else None))
        self.top = 86.0 + 17.0 * len(ends)
        self.bottom = self.top + self.row * len(self.names)
        self.height = self.bottom + 66.0

    def x(self, time: float) -> float:
        return self.left + (self.right - self.left) * min(1.0, time / self.seconds)

    def y(self, index: int) -> float:
        return self.top + self.row * index


def _bar(x: float, y: float, width: float, height: float, fill: str = TRUTH) -> str:
    return element("rect", x=x, y=y, width=width, height=height, fill=fill)


def _rows(story: Story, frame: _Frame) -> Iterator[str]:
    height = frame.row - (1.0 if frame.row >= 7 else 0.5)
    every = math.ceil(_LABEL_STEP / frame.row)
    for index, name in enumerate(frame.names):
        y = frame.y(index)
        if index % every == 0:
            label, middle = shortened(name, 30), y + frame.row / 2 + 4
            yield text(label, frame.left - 8, middle, text_anchor="end", font_size=12)
        line = story.levels[name]
        ends = [*(time for time, _ in line[1:]), story.seconds]
        for (start, level), end in zip(line, ends, strict=True):
            if level is not Level.ABSENT and end > start:
                # What is too short to see is shown as long as one can see.
                least = 0.0 if level is Level.ALIVE else 0.8
                width = max(frame.x(end) - frame.x(start), least)
                yield _bar(frame.x(start), y, width, height, COLOURS[level])


def _truth(story: Story, frame: _Frame) -> Iterator[str]:
    """What was true of single members."""
    rows = {name: index for index, name in enumerate(frame.names)}
    spans = spans_of(story)
    height = min(3.5, frame.row * 0.3)
    for name, index in rows.items():
        for start, end in spans[name][1]:
            y = frame.y(index + 1) - height - 0.5
            yield _bar(frame.x(start), y, frame.x(end) - frame.x(start), height)
    size = min(6.0, max(3.5, frame.row * 0.32))
    for seen in story.faults:
        row = rows.get(getattr(seen.fault, "address", ""))
        shape = _SIGNS.get(type(seen.fault))
        if row is not None and shape is not None:
            yield sign(shape, frame.x(seen.time), frame.y(row) + frame.row / 2, size)


def _bands(frame: _Frame) -> Iterator[str]:
    top = frame.top - 6
    for start, end, label, lane in frame.bands:
        yield element(
            "rect", x=start, y=top, width=max(1.0, end - start), height=frame.bottom - top, fill=_BAND,
            fill_opacity=0.06, stroke=_BAND, stroke_dasharray="5 4", stroke_width=1.2,
        )  # fmt: skip
        if lane is not None:
            is_over = start + 7.5 * len(label) > frame.right
            x, anchor = (end, "end") if is_over else (start, "start")
            yield text(label, x, frame.top - 12 - 17.0 * lane, fill=TRUTH, text_anchor=anchor)


def _axis(frame: _Frame) -> Iterator[str]:
    y = frame.bottom + 4
    yield element("line", x1=frame.left, x2=frame.right, y1=y, y2=y, stroke=INK)
    step = _step(frame.seconds)
    for number in range(int(frame.seconds / step + 1e-9) + 1):
        x = frame.x(number * step)
        yield element("line", x1=x, x2=x, y1=y, y2=y + 6, stroke=INK)
        yield text(f"{number * step:g}", x, y + 21, text_anchor="middle")
    yield text("seconds", (frame.left + frame.right) / 2, y + 44, text_anchor="middle")


def _step(seconds: float) -> float:
    """A round distance between ticks, so that there are five to twelve.

    >>> _step(60.0), _step(7.0), _step(0.3)
    (10.0, 1.0, 0.05)
    """
    rough = seconds / 10
    power = 10.0 ** math.floor(math.log10(rough))
    factor = next(factor for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    return float(f"{factor * power:.12g}")
