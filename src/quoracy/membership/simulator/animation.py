"""A run as an animation: members on a circle that change colour as time goes by.

The animation is inside the SVG itself (SMIL), so any browser plays it, without a script.  A cross lies
on members whose process is down, a blue ring around those that are stopped or slow, and arcs along the
sides of a partition; in the middle are the time and what happened last.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

from quoracy.membership.simulator.faults import (
    Crash,
    Heal,
    Join,
    Leave,
    Partition,
    Restart,
    Slow,
    Stall,
)
from quoracy.membership.simulator.palette import (
    COLOURS,
    FONT,
    INK,
    LEGEND,
    element,
    safe,
    shown,
    text,
    title_of,
)
from quoracy.membership.simulator.story import Level, MomentKind, Story
from quoracy.membership.simulator.timeline import lines

__all__ = ["animation"]

_SIZE = 900.0
_CENTRE = (_SIZE / 2, 462.0)
_RADIUS = 330.0
_LABELS_MAX = 64  # more names than this around the circle would touch
_ONE_RING_MAX = 90  # beyond it every second member is on a ring of its own
_RINGS_APART = 22.0
_CLOCK_STEPS = 120
_CAPTION_CHARS = 44
_TRUE = "#0b3d91"
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
    played = lasts_s or min(40.0, max(8.0, story.seconds / 3))
    clock = _Clock(max(story.seconds, 1e-9), played)
    names = shown(story)
    parts = [
        element("rect", width=_SIZE, height=_SIZE + 60, fill="#ffffff"),
        text(title_of(story), _SIZE / 2, 34, font_size=20, font_weight="600", text_anchor="middle"),
        *_sides(story, names, clock),
        *_members(story, names, clock),
        *_middle(story, clock),
        *_bar(story, clock),
        *_legend(),
    ]
    return element(
        "svg",
        "\n" + "\n".join(parts) + "\n",
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {_SIZE:g} {_SIZE + 60:g}",
        width=_SIZE,
        height=_SIZE + 60,
        font_family=FONT,
        font_size=13,
        fill=INK,
        role="img",
    )


class _Clock:
    """Turns times of the run into times of the animation."""

    def __init__(self, seconds: float, lasts_s: float) -> None:
        self._seconds, self._lasts_s = seconds, lasts_s

    def animate(self, attribute: str, values: Sequence[tuple[float, str]]) -> str:
        """An attribute that jumps to each value at its time; the first time must be 0."""
        if len(values) < 2:
            return ""
        # Two at one time, after rounding: only the last is seen, and times must grow.
        kept: dict[str, str] = {}
        for time, value in values:
            kept[f"{min(time / self._seconds, 1.0):.5f}"] = value
        return element(
            "animate",
            attributeName=attribute,
            calcMode="discrete",
            keyTimes=";".join(key.rstrip("0").rstrip(".") or "0" for key in kept),
            values=";".join(kept.values()),
            dur=f"{self._lasts_s:g}s",
            repeatCount="indefinite",
        )

    def glide(self, attribute: str, start: float, end: float) -> str:
        """An attribute that goes evenly from one value to another."""
        return element(
            "animate",
            attributeName=attribute,
            values=f"{start:g};{end:g}",
            dur=f"{self._lasts_s:g}s",
            repeatCount="indefinite",
        )

    def during(self, spans: Iterable[tuple[float, float]]) -> str:
        """Seen during these spans only, which do not overlap."""
        values = [(0.0, "hidden")]
        for start, end in sorted(spans):
            values += [(start, "visible"), (end, "hidden")]
        return self.animate("visibility", values)


def _place(index: int, count: int, radius: float) -> tuple[float, float]:
    angle = 2 * math.pi * index / count - math.pi / 2
    return _CENTRE[0] + radius * math.cos(angle), _CENTRE[1] + radius * math.sin(angle)


def _members(story: Story, names: Sequence[str], clock: _Clock) -> Iterator[str]:
    count = len(names)
    rings = 1 if count <= _ONE_RING_MAX else 2
    size = max(3.2, min(20.0, 0.4 * 2 * math.pi * _RADIUS * rings / count, 9.0 if rings > 1 else 20.0))
    troubles = _troubles(story)
    labelled: list[int] = []
    for index, name in enumerate(names):
        inwards = _RINGS_APART if rings > 1 and index % 2 else 0.0
        x, y = _place(index, count, _RADIUS - inwards)
        line = story.levels[name]
        colours = clock.animate("fill", [(time, COLOURS[level]) for time, level in line])
        yield element(
            "circle", colours + element("title", safe(name)), cx=x, cy=y, r=size,
            fill=COLOURS[line[0][1]], stroke="#7f93a6", stroke_width=0.8,
        )  # fmt: skip
        down, ill = troubles.get(name, ((), ()))
        if ill:
            yield element(
                "circle", clock.during(ill), cx=x, cy=y, r=size + 2.5, fill="none", stroke=_TRUE,
                stroke_width=2.5, visibility="hidden",
            )  # fmt: skip
        if down:
            yield _cross(x, y, size * 0.55, clock.during(down))
        # The last and the first are neighbours, too.
        gaps = (index - labelled[-1], count - index + labelled[0]) if labelled else (count,)
        if count <= _LABELS_MAX or ((down or ill) and min(gaps) * _LABELS_MAX >= count):
            labelled.append(index)
            yield _label(name, index, count, size)


def _label(name: str, index: int, count: int, size: float) -> str:
    x, y = _place(index, count, _RADIUS + size + 18)
    side = x - _CENTRE[0]
    anchor = "middle" if abs(side) < 30 else "start" if side > 0 else "end"
    shift = 0.0 if anchor == "middle" else math.copysign(6.0, -side)
    short = name if len(name) <= 12 else name[:11] + "…"
    return text(short, x + shift, y + 4.5, text_anchor=anchor, font_size=12)


def _troubles(
    story: Story,
) -> dict[str, tuple[list[tuple[float, float]], list[tuple[float, float]]]]:
    """When each member was down, and when it was stopped or slow."""
    found: dict[str, tuple[list[tuple[float, float]], list[tuple[float, float]]]] = {}
    began: dict[str, float] = {}
    for seen in story.faults:
        match seen.fault:
            case Crash(address) | Leave(address):
                began.setdefault(address, seen.time)
            case Restart(address) | Join(address):
                if address in began:
                    found.setdefault(address, ([], []))[0].append((began.pop(address), seen.time))
            case Stall(address, _, until):
                found.setdefault(address, ([], []))[1].append((seen.time, min(until, story.seconds)))
            case Slow(address, _, _, until):
                found.setdefault(address, ([], []))[1].append((seen.time, min(until, story.seconds)))
            case _:
                pass
    for address, time in began.items():
        found.setdefault(address, ([], []))[0].append((time, story.seconds))
    return {name: (down, _joined(ill)) for name, (down, ill) in found.items()}


def _joined(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The same time, in spans that do not overlap."""
    joined: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _sides(story: Story, names: Sequence[str], clock: _Clock) -> Iterator[str]:
    """An arc along each run of members on one side of a partition, while it lasts."""
    heals = [seen.time for seen in story.faults if isinstance(seen.fault, Heal)]
    count = len(names)
    for seen in story.faults:
        if not isinstance(seen.fault, Partition):
            continue
        until = min([seen.fault.until, story.seconds, *(each for each in heals if each >= seen.time)])
        of = {name: number for number, group in enumerate(seen.fault.groups) for name in group}
        sides = [of.get(name, len(seen.fault.groups)) for name in names]
        shown_when = clock.during([(seen.time, until)])
        start = 0
        for index in range(1, count + 1):
            if index < count and sides[index] == sides[start]:
                continue
            x1, y1 = _place_half(start - 0.4, count)
            x2, y2 = _place_half(index - 0.6, count)
            large = int((index - start) * 2 > count)
            arc = f"M{x1:.1f} {y1:.1f}A{_ARC:g} {_ARC:g} 0 {large} 1 {x2:.1f} {y2:.1f}"
            yield element(
                "path", shown_when, d=arc, fill="none", stroke=_SIDES[sides[start] % len(_SIDES)],
                stroke_width=7, visibility="hidden",
            )  # fmt: skip
            start = index


_ARC = _RADIUS - 44.0


def _place_half(position: float, count: int) -> tuple[float, float]:
    angle = 2 * math.pi * position / count - math.pi / 2
    return _CENTRE[0] + _ARC * math.cos(angle), _CENTRE[1] + _ARC * math.sin(angle)


def _middle(story: Story, clock: _Clock) -> Iterator[str]:
    x, y = _CENTRE
    step = story.seconds / _CLOCK_STEPS
    digits = 0 if step >= 1 else 1
    for number in range(_CLOCK_STEPS):
        time = number * step
        yield text(f"{time:.{digits}f} s", x, y - 36, **_BIG).replace(
            "</text>", clock.during([(time, time + step)]) + "</text>"
        )
    # The network and the members, each on a line of its own: what was the last thing that happened?
    about_faults = (MomentKind.FAULT, MomentKind.HEALED)
    faults = [(each.time, each.text) for each in story.moments if each.kind in about_faults]
    others = [(line.time, line.text) for line in lines(story) if line.kind not in about_faults]
    for height, told in ((10.0, faults), (38.0, others)):
        colour = _TRUE if height < 20 else INK
        for (time, words), (until, _) in itertools.pairwise([*told, (story.seconds, "")]):
            if until > time:
                yield text(
                    _shortened(words), x, y + height, text_anchor="middle", font_size=17,
                    visibility="hidden", fill=colour,
                ).replace("</text>", clock.during([(time, until)]) + "</text>")  # fmt: skip


_BIG: dict[str, str | float] = {
    "text_anchor": "middle",
    "font_size": 42,
    "font_weight": "600",
    "visibility": "hidden",
}


def _shortened(words: str) -> str:
    words = words.partition(", until ")[0]
    return words if len(words) <= _CAPTION_CHARS else words[: _CAPTION_CHARS - 1] + "…"


def _bar(story: Story, clock: _Clock) -> Iterator[str]:
    """How far it is, with a tick for each fault."""
    left, width, y = 80.0, _SIZE - 160, _SIZE - 22
    yield element("rect", x=left, y=y, width=width, height=8, fill="#e3e9ee", rx=4)
    grows = clock.glide("width", 0, width)
    yield element("rect", grows, x=left, y=y, width=width, height=8, fill="#7f93a6", rx=4)
    for seen in story.faults:
        x = left + width * seen.time / max(story.seconds, 1e-9)
        yield element("rect", x=x - 1, y=y - 5, width=2, height=18, fill=_TRUE)


def _legend() -> Iterator[str]:
    x, y = 24.0, _SIZE + 22
    entries = [(COLOURS[level], label) for level, label in LEGEND if level is not Level.ABSENT]
    for colour, label in entries:
        yield element("circle", cx=x + 7, cy=y - 4.5, r=7, fill=colour, stroke="#7f93a6")
        yield text(label, x + 20, y)
        x += 32 + 7.6 * len(label)
    yield _cross(x + 7, y - 4.5, 5.0, "")
    yield text("down", x + 20, y)
    x += 66
    ring = {"fill": "none", "stroke": _TRUE, "stroke_width": 2.5}
    yield element("circle", cx=x + 7, cy=y - 4.5, r=6, **ring)  # type: ignore[arg-type]
    yield text("stopped or slow", x + 20, y)


def _cross(x: float, y: float, size: float, when: str) -> str:
    path = f"M{x - size:.1f} {y - size:.1f}L{x + size:.1f} {y + size:.1f}"
    path += f"M{x - size:.1f} {y + size:.1f}L{x + size:.1f} {y - size:.1f}"
    seen = "hidden" if when else "visible"
    halo = element("path", when, d=path, stroke="#ffffff", stroke_width=5, fill="none", visibility=seen)
    return halo + element(
        "path", when, d=path, stroke="#000000", stroke_width=2.2, fill="none", visibility=seen
    )
