"""The parts of both pictures of a run: SVG elements, colours, signs, the legend, and what is shown.

The colours differ in lightness as well as in hue, from pale for alive to almost black for dead, so they
can be distinguished in print and by people who see few hues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from html import escape
from typing import TypeAlias

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
)
from quoracy.membership.simulator.story import Level, Story

__all__ = [
    "COLOURS", "INK", "MARGIN", "MEMBERS_MAX", "TRUTH", "Sign", "Span", "cut_spans", "document",
    "element", "legend", "shortened", "shown", "sign", "spans_of", "text", "title_of",
]  # fmt: skip

Span: TypeAlias = tuple[float, float]
# A sign of the legend, drawn around a point, and its label.
Sign: TypeAlias = tuple[Callable[[float, float], str], str]

COLOURS = {
    Level.ABSENT: "#ffffff",
    Level.ALIVE: "#cfe4f3",
    Level.SUSPECTED: "#f2c230",
    Level.DISPUTED: "#d55e00",
    Level.DEAD: "#2b2b2b",
    Level.LEFT: "#8a959e",
}
_LEGEND = {
    Level.ALIVE: "alive to all",
    Level.SUSPECTED: "suspected by some",
    Level.DISPUTED: "dead or gone to some",
    Level.DEAD: "dead to all",
    Level.LEFT: "left",
}
INK = "#1d2733"
TRUTH = "#0b3d91"  # what was true, whatever the members believed
MARGIN = 24.0
MEMBERS_MAX = 200
_FONT = "system-ui, 'DejaVu Sans', 'Segoe UI', Helvetica, Arial, sans-serif"


def element(name: str, content: str = "", /, **attributes: str | float) -> str:
    """One SVG element; `stroke_width` is written `stroke-width`.

    >>> element("rect", x=1, width=2.5)
    '<rect x="1" width="2.5"/>'
    """
    written = "".join(
        f' {key.replace("_", "-")}="{safe(_number(value))}"' for key, value in attributes.items()
    )
    return f"<{name}{written}>{content}</{name}>" if content else f"<{name}{written}/>"


def text(content: str, /, x: float, y: float, *, animation: str = "", **attributes: str | float) -> str:
    """A line of text."""
    return element("text", safe(content) + animation, x=x, y=y, **attributes)


def safe(content: str) -> str:
    """Text that can stand anywhere in XML; what XML has no way to say becomes a question mark.

    >>> safe("a<b" + chr(1))
    'a&lt;b?'
    """
    return escape("".join(char if char.isprintable() else "?" for char in content))


def shortened(words: str, chars_max: int) -> str:
    return words if len(words) <= chars_max else words[: chars_max - 1] + "…"


def document(width: float, height: float, parts: Iterable[str]) -> str:
    """A document of its own, without script or anything to fetch."""
    white = element("rect", width=width, height=height, fill="#ffffff")
    return element(
        "svg", "\n".join(["", white, *parts, ""]), xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width:g} {height:.0f}", width=width, height=round(height), font_family=_FONT,
        font_size=13, fill=INK, role="img",
    )  # fmt: skip


def sign(shape: str, x: float, y: float, size: float, animation: str = "") -> str:
    """A cross where a process ended, a triangle where it began again, a diamond where it left."""
    left, right, top, bottom = (f"{at:.1f}" for at in (x - size, x + size, y - size, y + size))
    seen = {"visibility": "hidden"} if animation else {}
    if shape == "cross":
        path = f"M{left} {top}L{right} {bottom}M{left} {bottom}L{right} {top}"
        return "".join(
            element("path", animation, d=path, stroke=stroke, stroke_width=width, fill="none", **seen)
            for stroke, width in (("#ffffff", 5), ("#000000", 2.4))
        )
    if shape == "triangle":
        path, fill, stroke = f"M{left} {bottom}L{right} {bottom}L{x:.1f} {top}Z", TRUTH, "#ffffff"
    else:
        path = f"M{left} {y:.1f}L{x:.1f} {top}L{right} {y:.1f}L{x:.1f} {bottom}Z"
        fill, stroke = "#ffffff", "#000000"
    return element("path", d=path, fill=fill, stroke=stroke, stroke_width=1.4)


def legend(y: float, signs: Iterable[Sign]) -> Iterator[str]:
    """The colours of the levels, then these signs, in one line."""
    x = MARGIN
    for level, label in _LEGEND.items():
        yield element("rect", x=x, y=y - 11, width=14, height=14, fill=COLOURS[level], rx=2)
        yield text(label, x + 20, y)
        x += 32 + 7.6 * len(label)
    for draw, label in signs:
        yield draw(x + 7, y - 4.5)
        yield text(label, x + 20, y)
        x += 32 + 7.6 * len(label)


def shown(story: Story) -> tuple[str, ...]:
    """The members in a picture: all, or if there are too many, first those with faults and changes."""
    if len(story.names) <= MEMBERS_MAX:
        return story.names
    about = {getattr(seen.fault, "address", "") for seen in story.faults}
    busy = sorted(story.names, key=lambda name: (name not in about, -len(story.levels[name])))
    chosen = set(busy[:MEMBERS_MAX])
    return tuple(name for name in story.names if name in chosen)


def title_of(story: Story) -> str:
    """The title of a picture."""
    count = len(story.names)
    some = f", {MEMBERS_MAX} of them shown" if count > MEMBERS_MAX else ""
    members = "1 member" if count == 1 else f"{count:,} members"
    return f"{members}{some}, {story.seconds:g} s, seed {story.seed}"


def spans_of(story: Story) -> dict[str, tuple[list[Span], list[Span]]]:
    """When each member was down, and when it was stopped or slow."""
    found: dict[str, tuple[list[Span], list[Span]]] = {name: ([], []) for name in story.names}
    began: dict[str, float] = {}
    for seen in story.faults:
        match seen.fault:
            case Crash(address) | Leave(address):
                began.setdefault(address, seen.time)
            case Restart(address) | Join(address) if address in began:
                found[address][0].append((began.pop(address), seen.time))
            case (Stall(address) | Slow(address)) as fault:
                found[address][1].append((seen.time, min(fault.until, story.seconds)))
            case _:
                pass
    for address, time in began.items():
        found[address][0].append((time, story.seconds))
    return {name: (down, _joined(ill)) for name, (down, ill) in found.items()}


def cut_spans(story: Story) -> Iterator[tuple[float, float, Partition | OneWay | Loss]]:
    """The faults of the network, and from when to when each lasted."""
    heals = [seen.time for seen in story.faults if isinstance(seen.fault, Heal)]
    for seen in story.faults:
        fault = seen.fault
        if isinstance(fault, Loss):
            yield seen.time, min(fault.until, story.seconds), fault
        elif isinstance(fault, Partition | OneWay):
            healed = [time for time in heals if time >= seen.time]
            yield seen.time, min([fault.until, story.seconds, *healed]), fault


def _joined(spans: list[Span]) -> list[Span]:
    """The same time, in spans that do not overlap."""
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _number(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.2f}".rstrip("0").rstrip(".")
