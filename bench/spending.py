"""What the processes of a system take of the processors while something else is measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import psutil

__all__ = ["Cycles", "Meter", "Told", "meter", "no_meter"]

# Processor seconds so far.  Two readings make a difference; the kernel counts in hundredths.
Meter = Callable[[], float]


def meter(pids: Sequence[int]) -> Meter:
    """What these processes took together, in user and in system mode; none of them has children."""
    processes = [psutil.Process(pid) for pid in pids]

    def read() -> float:
        times = [process.cpu_times() for process in processes]
        return sum(each.user + each.system for each in times)

    return read


def no_meter() -> float:
    """Nobody asked."""
    return 0.0


@dataclass(frozen=True, slots=True)
class Told:
    """How long until the last watcher knew, and the servers' processor time for one such write."""

    median_s: float
    spent_s: float


@dataclass(frozen=True, slots=True)
class Cycles:
    """How often a second a lock was taken and given back; the servers' processor time for each."""

    rate: float
    spent_s: float
