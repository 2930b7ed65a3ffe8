"""A run as one picture: members as rows, time to the right, how they were seen as colours.  Plain SVG.

Beside what the members believed it shows what was true: a cross where a process ended, a triangle where
it began again, a diamond where it left, a line under the row while it was stopped or slow, and bands
over all rows while the network was parted or lossy.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from quoracy.membership.simulator.faults import (
    Crash,
    Heal,
    Join,
    Leave,
    Loss,
    OneWay,
    Partition,
    Restart,
    Slow,
    Stall,
    describe,
)
from quoracy.membership.simulator.palette import (
    COLOURS,
    FONT,
    INK,
    LEGEND,
    element,
    shown,
    text,
    title_of,
)
from quoracy.membership.simulator.story import Level, Story

__all__ = ["picture"]

_WIDTH = 1_200.0
_MARGIN = 24.0
_LABEL_CHAR = 7.2
_LABEL_STEP = 13.0  # labels closer than this would touch
_BAND = "#56799c"
_TRUE = "#0b3d91"
_LANES_MAX = 4


class _Frame:
    """Where things are."""

    def __init__(self, story: Story, names: tuple[str, ...], lanes: int) -> None:
        self.seconds = max(story.seconds, 1e-9)
        self.names = names
        self.row = min(24.0, max(5.0, 640.0 / len(names)))
        self.left = _MARGIN + min(220.0, _LABEL_CHAR * max(len(name) for name in names)) + 10
        self.right = _WIDTH - _MARGIN
        self.top = 86.0 + 17.0 * lanes
        self.bottom = self.top + self.row * len(names)
        self.height = self.bottom + 66.0

    def x(self, time: float) -> float:
        return self.left + (self.right - self.left) * min(1.0, time / self.seconds)

    def y(self, index: int) -> float:
        return self.top + self.row * index


def picture(story: Story) -> str:
    """The picture as SVG: a document of its own, without script or anything to fetch.

    >>> from quoracy.membership.simulator.story import tell
    >>> from quoracy.membership.simulator.swim_cluster import swim_cluster
    >>> cluster = swim_cluster(3, seed=1)
    >>> cluster.run(until=5.0)
    >>> picture(tell(cluster)).startswith('<svg xmlns="http://www.w3.org/2000/svg"')
    True
    """
    names = shown(story)
    bands = list(_bands(story))
    lanes, lanes_count = _lanes(bands, story)
    frame = _Frame(story, names, lanes_count)
    parts = [
        element("rect", width=_WIDTH, height=frame.height, fill="#ffffff"),
        text(title_of(story), _MARGIN, 36, font_size=20, font_weight="600"),
        *_legend(),
        *_rows(story, frame),
        *_bands_drawn(bands, lanes, frame),
        *_marks(story, frame),
        *_axis(frame),
    ]
    return element(
        "svg",
        "\n" + "\n".join(parts) + "\n",
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {_WIDTH:g} {frame.height:.0f}",
        width=_WIDTH,
        height=round(frame.height),
        font_family=FONT,
        font_size=13,
        fill=INK,
        role="img",
    )


def _legend() -> Iterator[str]:
    x, y = _MARGIN, 62.0
    for level, label in LEGEND:
        yield element("rect", x=x, y=y - 11, width=14, height=14, fill=COLOURS[level], rx=2)
        yield text(label, x + 20, y)
        x += 32 + 7.6 * len(label)
    signs = (
        (_cross, "ended"),
        (_triangle, "began again"),
        (_diamond, "said goodbye"),
        (None, "stopped or slow"),
    )
    for sign, label in signs:
        if sign is None:
            yield element("rect", x=x, y=y - 6, width=14, height=3.5, fill=_TRUE)
        else:
            yield sign(x + 7, y - 4.5, 5.0)
        yield text(label, x + 20, y)
        x += 32 + 7.6 * len(label)


def _rows(story: Story, frame: _Frame) -> Iterator[str]:
    gap = 1.0 if frame.row >= 7 else 0.5
    every = max(1, math.ceil(_LABEL_STEP / frame.row))
    for index, name in enumerate(frame.names):
        y = frame.y(index)
        if index % every == 0:
            middle = y + frame.row / 2 + 4
            label = name if len(name) <= 30 else name[:29] + "…"
            yield text(label, frame.left - 8, middle, text_anchor="end", font_size=12)
        line = story.levels[name]
        ends = [time for time, _ in line[1:]] + [story.seconds]
        for (start, level), end in zip(line, ends, strict=True):
            if level is Level.ABSENT or end <= start:
                continue
            x = frame.x(start)
            # What is too short to see is shown as long as one can see.
            width = max(frame.x(end) - x, 0.8 if level is not Level.ALIVE else 0.0)
            height = frame.row - gap
            yield element("rect", x=x, y=y, width=width, height=height, fill=COLOURS[level])


def _marks(story: Story, frame: _Frame) -> Iterator[str]:
    """What was true of single members."""
    size = min(6.0, max(3.5, frame.row * 0.32))
    rows = {name: index for index, name in enumerate(frame.names)}
    for seen in story.faults:
        fault = seen.fault
        index = rows.get(getattr(fault, "address", ""))
        if index is None:
            continue
        x, y = frame.x(seen.time), frame.y(index) + frame.row / 2
        match fault:
            case Crash():
                yield _cross(x, y, size)
            case Restart() | Join():
                yield _triangle(x, y, size)
            case Leave():
                yield _diamond(x, y, size)
            case Stall() | Slow():
                height = min(3.5, frame.row * 0.3)
                bottom = frame.y(index) + frame.row - height - 0.5
                width = frame.x(min(fault.until, story.seconds)) - x
                yield element("rect", x=x, y=bottom, width=width, height=height, fill=_TRUE)
            case _:
                pass


def _bands(story: Story) -> Iterator[tuple[float, float, str]]:
    """What was wrong with the network, and from when to when."""
    heals = [seen.time for seen in story.faults if isinstance(seen.fault, Heal)]
    for seen in story.faults:
        fault = seen.fault
        if isinstance(fault, Partition | OneWay | Loss):
            until = min(fault.until, story.seconds)
            if not isinstance(fault, Loss):
                until = min([until, *(time for time in heals if time >= seen.time)])
            yield seen.time, until, describe(fault).partition(" until ")[0]


def _lanes(bands: list[tuple[float, float, str]], story: Story) -> tuple[list[int | None], int]:
    """A lane for each label, so that none covers another; None where no lane has room."""
    scale = (_WIDTH - 160) / max(story.seconds, 1e-9)
    ends: list[float] = []
    lanes: list[int | None] = []
    for start, _, label in bands:
        begins, width = start * scale, 7.5 * len(label) + 14
        free = next((lane for lane, end in enumerate(ends) if end <= begins), len(ends))
        if free >= _LANES_MAX:
            lanes.append(None)
            continue
        if free == len(ends):
            ends.append(0.0)
        ends[free] = begins + width
        lanes.append(free)
    return lanes, len(ends)


def _bands_drawn(
    bands: list[tuple[float, float, str]], lanes: list[int | None], frame: _Frame
) -> Iterator[str]:
    for (start, end, label), lane in zip(bands, lanes, strict=True):
        x, width = frame.x(start), max(1.0, frame.x(end) - frame.x(start))
        top = frame.top - 6
        height = frame.bottom - top
        yield element(
            "rect", x=x, y=top, width=width, height=height, fill=_BAND, fill_opacity=0.06,
            stroke=_BAND, stroke_dasharray="5 4", stroke_width=1.2,
        )  # fmt: skip
        if lane is not None:
            y = frame.top - 12 - 17.0 * lane
            over = x + 7.5 * len(label) > frame.right
            anchor = {"text_anchor": "end"} if over else {}
            yield text(label, frame.x(end) if over else x, y, fill=_TRUE, **anchor)


def _axis(frame: _Frame) -> Iterator[str]:
    y = frame.bottom + 4
    yield element("line", x1=frame.left, x2=frame.right, y1=y, y2=y, stroke=INK, stroke_width=1)
    step = _step(frame.seconds)
    count = int(frame.seconds / step + 1e-9)
    for number in range(count + 1):
        x = frame.x(number * step)
        yield element("line", x1=x, x2=x, y1=y, y2=y + 6, stroke=INK, stroke_width=1)
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


def _cross(x: float, y: float, size: float) -> str:
    path = f"M{x - size:.1f} {y - size:.1f}L{x + size:.1f} {y + size:.1f}"
    path += f"M{x - size:.1f} {y + size:.1f}L{x + size:.1f} {y - size:.1f}"
    halo = element("path", d=path, stroke="#ffffff", stroke_width=5, fill="none")
    return halo + element("path", d=path, stroke="#000000", stroke_width=2.4, fill="none")


def _triangle(x: float, y: float, size: float) -> str:
    path = f"M{x - size:.1f} {y + size:.1f}L{x + size:.1f} {y + size:.1f}L{x:.1f} {y - size:.1f}Z"
    return element("path", d=path, fill=_TRUE, stroke="#ffffff", stroke_width=1.2)


def _diamond(x: float, y: float, size: float) -> str:
    path = (
        f"M{x - size:.1f} {y:.1f}L{x:.1f} {y - size:.1f}L{x + size:.1f} {y:.1f}L{x:.1f} {y + size:.1f}Z"
    )
    return element("path", d=path, fill="#ffffff", stroke="#000000", stroke_width=1.6)
