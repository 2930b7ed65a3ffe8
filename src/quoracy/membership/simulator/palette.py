"""What both pictures have in common: colours, whom they show, and how text becomes SVG.

The colours differ in lightness as well as in hue, from pale for alive to almost black for dead, so they
can be told apart in print and by people who see few hues.
"""

from __future__ import annotations

from html import escape

from quoracy.membership.simulator.faults import Crash, Join, Leave, Restart, Slow, Stall
from quoracy.membership.simulator.story import Level, Story

__all__ = [
    "COLOURS",
    "FONT",
    "INK",
    "LEGEND",
    "MEMBERS_MAX",
    "element",
    "safe",
    "shown",
    "text",
    "title_of",
]

COLOURS = {
    Level.ABSENT: "#ffffff",
    Level.ALIVE: "#cfe4f3",
    Level.SUSPECTED: "#f2c230",
    Level.DISPUTED: "#d55e00",
    Level.DEAD: "#2b2b2b",
    Level.LEFT: "#8a959e",
}
LEGEND = (
    (Level.ALIVE, "alive to all"),
    (Level.SUSPECTED, "suspected by some"),
    (Level.DISPUTED, "dead or gone to some"),
    (Level.DEAD, "dead to all"),
    (Level.LEFT, "left"),
)
INK = "#1d2733"
FONT = "system-ui, 'DejaVu Sans', 'Segoe UI', Helvetica, Arial, sans-serif"
MEMBERS_MAX = 200


def element(name: str, content: str = "", /, **attributes: str | float) -> str:
    """One SVG element; `stroke_width` is written `stroke-width`.

    >>> element("rect", x=1, width=2.5)
    '<rect x="1" width="2.5"/>'
    """
    written = "".join(
        f' {key.replace("_", "-")}="{safe(_number(value))}"' for key, value in attributes.items()
    )
    return f"<{name}{written}>{content}</{name}>" if content else f"<{name}{written}/>"


def text(content: str, /, x: float, y: float, **attributes: str | float) -> str:
    """A line of text."""
    return element("text", safe(content), x=x, y=y, **attributes)


def safe(content: str) -> str:
    """Text that can stand anywhere in XML; what XML has no way to say becomes a question mark.

    >>> safe("a<b" + chr(1))
    'a&lt;b?'
    """
    return escape("".join(char if char.isprintable() else "?" for char in content))


def shown(story: Story) -> tuple[str, ...]:
    """Whom a picture shows: all, or of more than fit those first to whom something happened."""
    if len(story.names) <= MEMBERS_MAX:
        return story.names
    about = {
        seen.fault.address
        for seen in story.faults
        if isinstance(seen.fault, Crash | Restart | Join | Leave | Stall | Slow)
    }
    busy = sorted(story.names, key=lambda name: (name not in about, -len(story.levels[name])))
    chosen = set(busy[:MEMBERS_MAX])
    return tuple(name for name in story.names if name in chosen)


def title_of(story: Story) -> str:
    """What the picture is of."""
    count = len(story.names)
    some = f", {MEMBERS_MAX} of them shown" if count > MEMBERS_MAX else ""
    members = "1 member" if count == 1 else f"{count:,} members"
    return f"{members}{some}, {story.seconds:g} s, seed {story.seed}"


def _number(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.2f}".rstrip("0").rstrip(".")
