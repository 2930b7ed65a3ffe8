"""A run as an animation: members on a circle that change colour as time goes by.

The animation is inside the SVG itself (SMIL), so any browser plays it, without a script.  A cross lies
on members whose process is down, a blue ring around those that are stopped or slow, and arcs along the
sides of a partition; in the middle are the time and what happened last.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

from quoracy.membership.simulator.drawing import (
    COLOURS,
    INK,
    TRUTH,
    Span,
    cut_spans,
    document,
    element,
    legend,
    safe,
    shortened,
    shown,
    sign,
    spans_of,
    text,
    title_of,
)
from quoracy.membership.simulator.faults import Partition
from quoracy.membership.simulator.story import MomentKind, Story
from quoracy.membership.simulator.timeline import lines

__all__ = ["animation"]

_SIZE = 900.0
_X, _Y = _SIZE / 2, 462.0
_RADIUS = 330.0
_LABELS_MAX = 64  # more names than this around the circle would touch
_ONE_RING_MAX = 90  # beyond it every second member is on a ring of its own
_RINGS_APART = 22.0
_CLOCK_STEPS = 120
_CAPTION_CHARS = 44
_SIDES = ("#0072b2", "#009e73", "#cc79a7", "#e69f00")


def animation(story: Story, *, lasts_s: float | None = None) -> str:
    """The animation as SVG; it plays for `lasts_s` and begins again.

    By default it lasts a third of the run, but between 8 and 40 seconds.

    >>> from quoracy.membership.simulator.story import tell
    >>> from quoracy.membership.simulator.swim_cluster import swim_cluster
    >>> cluster = swim_cluster(3, seed=1)
    >>> cluster.world.crash("m1", at=2.0)
    >>> cluster.run(until=20.0)
    >>> "<animate " in animation(tell(cluster))
    True
    """
    clock = _Clock(story.seconds, lasts_s or min(40.0, max(8.0, story.seconds / 3)))
    names = shown(story)
    signs = ((lambda x, y: sign("cross", x, y, 5.0), "down"), (_ring, "stopped or slow"))
    parts = [
        text(title_of(story), _X, 34, font_size=20, font_weight="600", text_anchor="middle"),
        *_sides(story, names, clock),
        *_members(story, names, clock),
        *_middle(story, clock),
        *_bar(story, clock),
        *legend(_SIZE + 22, signs),
    ]
    return document(_SIZE, _SIZE + 60, parts)


class _Clock:
    """Turns times of the run into times of the animation."""

    def __init__(self, seconds: float, lasts_s: float) -> None:
        self._seconds = max(seconds, 1e-9)
        self._loop: dict[str, str | float] = {"dur": f"{lasts_s:g}s", "repeatCount": "indefinite"}

    def animate(self, attribute: str, values: Sequence[tuple[float, str]]) -> str:
        """An attribute that jumps to each value at its time; the first time must be 0."""
        if len(values) < 2:
            return ""
        # Two at one time, after rounding: only the last is seen, and times must grow.
        kept = {f"{min(time / self._seconds, 1.0):.5f}": value for time, value in values}
        times = ";".join(key.rstrip("0").rstrip(".") or "0" for key in kept)
        return element(
            "animate", attributeName=attribute, calcMode="discrete", keyTimes=times,
            values=";".join(kept.values()), **self._loop,
        )  # fmt: skip

    def glide(self, attribute: str, start: float, end: float) -> str:
        """An attribute that goes evenly from one value to another."""
        return element("animate", attributeName=attribute, values=f"{start:g};{end:g}", **self._loop)

    def during(self, spans: Iterable[Span]) -> str:
        """Seen during these spans only, which do not overlap."""
        values = [(0.0, "hidden")]
        for start, end in sorted(spans):
            values += [(start, "visible"), (end, "hidden")]
        return self.animate("visibility", values)


def _place(position: float, count: int, radius: float) -> tuple[float, float]:
    angle = 2 * math.pi * position / count - math.pi / 2
    return _X + radius * math.cos(angle), _Y + radius * math.sin(angle)


def _ring(x: float, y: float, radius: float = 6.0, animation: str = "") -> str:
    seen = "hidden" if animation else "visible"
    return element(
        "circle", animation, cx=x, cy=y, r=radius, fill="none", stroke=TRUTH, stroke_width=2.5,
        visibility=seen,
    )  # fmt: skip


def _members(story: Story, names: Sequence[str], clock: _Clock) -> Iterator[str]:
    count = len(names)
    rings = 1 if count <= _ONE_RING_MAX else 2
    size = max(3.2, min(20.0 if rings == 1 else 9.0, 0.8 * math.pi * _RADIUS * rings / count))
    spans = spans_of(story)
    labelled: list[int] = []
    for index, name in enumerate(names):
        x, y = _place(index, count, _RADIUS - _RINGS_APART * (index % rings))
        line = story.levels[name]
        inside = clock.animate("fill", [(time, COLOURS[level]) for time, level in line])
        inside += element("title", safe(name))
        yield element(
            "circle", inside, cx=x, cy=y, r=size, fill=COLOURS[line[0][1]], stroke="#7f93a6",
            stroke_width=0.8,
        )  # fmt: skip
        down, ill = spans[name]
        if ill:
            yield _ring(x, y, size + 2.5, clock.during(ill))
        if down:
            yield sign("cross", x, y, size * 0.55, clock.during(down))
        # The last and the first are neighbours, too.
        gap = min(index - labelled[-1], count - index + labelled[0]) if labelled else count
        if count <= _LABELS_MAX or ((down or ill) and gap * _LABELS_MAX >= count):
            labelled.append(index)
            x, y = _place(index, count, _RADIUS + size + 18)
            anchor, shift = ("start", -6.0) if x > _X else ("end", 6.0)
            if abs(x - _X) < 30:
                anchor, shift = "middle", 0.0
            yield text(shortened(name, 12), x + shift, y + 4.5, text_anchor=anchor, font_size=12)


def _sides(story: Story, names: Sequence[str], clock: _Clock) -> Iterator[str]:
    """An arc along each run of members on one side of a partition, while it lasts."""
    count, radius = len(names), _RADIUS - 44.0
    for start, end, fault in cut_spans(story):
        if not isinstance(fault, Partition):
            continue
        side_of = {name: number for number, group in enumerate(fault.groups) for name in group}
        sides = [side_of.get(name, len(fault.groups)) for name in names]
        first = 0
        for side, run in itertools.groupby(sides):
            last = first + len(list(run)) - 1
            (x1, y1), (x2, y2) = (_place(at, count, radius) for at in (first - 0.4, last + 0.4))
            is_large = int((last + 1 - first) * 2 > count)
            yield element(
                "path", clock.during([(start, end)]), visibility="hidden", fill="none", stroke_width=7,
                d=f"M{x1:.1f} {y1:.1f}A{radius:g} {radius:g} 0 {is_large} 1 {x2:.1f} {y2:.1f}",
                stroke=_SIDES[side % len(_SIDES)],
            )  # fmt: skip
            first = last + 1


def _middle(story: Story, clock: _Clock) -> Iterator[str]:
    """The time, and what happened last to the network and to the members, each on a line of its own."""
    step = story.seconds / _CLOCK_STEPS
    digits = 0 if step >= 1 else 1
    times = [(number * step, f"{number * step:.{digits}f} s") for number in range(_CLOCK_STEPS)]
    about_faults = (MomentKind.FAULT, MomentKind.HEALED)
    faults = [(each.time, each.text) for each in story.moments if each.kind in about_faults]
    others = [(line.time, line.text) for line in lines(story) if line.kind not in about_faults]
    for height, font_size, colour, told in (
        (-36.0, 42, INK, times), (10.0, 17, TRUTH, faults), (38.0, 17, INK, others),
    ):  # fmt: skip
        for (time, words), (until, _) in itertools.pairwise([*told, (story.seconds, "")]):
            if until > time:
                yield text(
                    shortened(words.partition(", until ")[0], _CAPTION_CHARS), _X, _Y + height,
                    animation=clock.during([(time, until)]), text_anchor="middle", visibility="hidden",
                    font_size=font_size, fill=colour,
                )  # fmt: skip


def _bar(story: Story, clock: _Clock) -> Iterator[str]:
    """How far it is, with a tick for each fault."""
    left, width, y = 80.0, _SIZE - 160, _SIZE - 22
    yield element("rect", x=left, y=y, width=width, height=8, fill="#e3e9ee", rx=4)
    grows = clock.glide("width", 0, width)
    yield element("rect", grows, x=left, y=y, width=width, height=8, fill="#7f93a6", rx=4)
    for seen in story.faults:
        x = left + width * seen.time / max(story.seconds, 1e-9)
        yield element("rect", x=x - 1, y=y - 5, width=2, height=18, fill=TRUTH)
