"""What a benchmark hands back: tables for people, targets to hold it to, data for plots and files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["Section", "Table", "Target", "count", "duration", "ratio", "size"]


@dataclass(frozen=True, slots=True)
class Target:
    """A number we hold ourselves to.  It is printed, met or not; nothing fails because of it."""

    what: str
    value: float
    limit: float
    at_least: bool
    unit: str

    @property
    def met(self) -> bool:
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    @property
    def wanted(self) -> str:
        return f"{'at least' if self.at_least else 'at most'} {self.limit:g}{_unit(self.unit)}"

    @property
    def reached(self) -> str:
        return f"{self.value:,.2f}{_unit(self.unit)}"


@dataclass(frozen=True, slots=True)
class Table:
    """The first column is text, the others are numbers that were made readable."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Section:
    """One benchmark's results."""

    name: str
    title: str
    note: str
    tables: Sequence[Table]
    targets: Sequence[Target] = ()
    data: Mapping[str, object] = field(default_factory=dict)


def count(value: float) -> str:
    return f"{value:,.0f}"


def ratio(value: float) -> str:
    return f"{value:.2f}"


def duration(seconds: float) -> str:
    for scale, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def size(value: float) -> str:
    for scale, unit in ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB")):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value:.0f} B"


def _unit(unit: str) -> str:
    return f" {unit}" if unit else ""
