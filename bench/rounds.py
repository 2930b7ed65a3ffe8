"""Rounds: those who are compared take short turns, again and again, so that noise hits all of them.

A rate is the median over the rounds; a ratio is the median of the ratios within each round, which
compares only what ran within a second of each other.
"""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

__all__ = ["LOOPS", "Contestant", "LoopName", "Rounds", "Settings", "alternate", "run"]

T = TypeVar("T")

# Works for about this many seconds; returns how many things it did a second.
Contestant = Callable[[float], Awaitable[float]]

LoopName = Literal["uvloop", "asyncio"]
LOOPS: tuple[LoopName, ...] = ("uvloop", "asyncio")


@dataclass(frozen=True, slots=True)
class Settings:
    """How thorough to be, and where data goes."""

    directory: Path
    quick: bool = False
    load: float = field(default_factory=lambda: os.getloadavg()[0])

    @property
    def rounds(self) -> int:
        return 3 if self.quick else 9

    @property
    def slice_s(self) -> float:
        return 0.08 if self.quick else 0.25

    def report(self, text: str) -> None:
        """Say what is going on: on one line for a person, nothing for a file."""
        if sys.stderr.isatty():
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


class Rounds:
    """The rates of every contestant, round by round."""

    def __init__(self, rates: Mapping[str, Sequence[float]]) -> None:
        self._rates = rates

    def rates(self, name: str) -> list[float]:
        return list(self._rates[name])

    def rate(self, name: str) -> float:
        return statistics.median(self._rates[name])

    def ratio(self, name: str, to: str) -> float:
        pairs = zip(self._rates[name], self._rates[to], strict=True)
        return statistics.median(mine / theirs for mine, theirs in pairs)


async def alternate(
    settings: Settings, what: str, contestants: Mapping[str, Contestant], *, slice_s: float = 0.0
) -> Rounds:
    """Let everybody have a turn in every round, in an order that changes: a turn on a disk is slower
    after somebody who left much to be written back."""
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(1, settings.rounds + 1):
        settings.report(f"{what}: round {number} of {settings.rounds}")
        for name in random.Random(number).sample(list(contestants), len(contestants)):
            rates[name].append(await contestants[name](slice_s or settings.slice_s))
    return Rounds(rates)


def run(main: Coroutine[Any, Any, T], loop: LoopName = "uvloop") -> T:
    """Run on a loop of this kind; plain asyncio where there is no uvloop."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    if loop == "uvloop":
        try:
            import uvloop
        except ImportError:
            pass
        else:
            factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)
