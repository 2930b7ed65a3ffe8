"""What can go wrong, as values: a schedule of faults is data that can be printed, kept and run again.

Each fault says when it begins (`at`, true seconds) and, where it lasts, when it ends (`until`).  The
`repr` of a fault is the code that makes it, so the schedule of a run that failed can be pasted into a
test.  `World.schedule` runs them.

>>> Crash("m3", at=10.0)
Crash(address='m3', at=10.0, kind='process')
"""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

import msgspec

from quoracy.errors import InvalidRequest
from quoracy.membership.machine import Address
from quoracy.membership.simulator.network import Cut

__all__ = [
    "Crash",
    "CrashKind",
    "Drift",
    "Fault",
    "Heal",
    "Join",
    "Leave",
    "Loss",
    "OneWay",
    "Partition",
    "Restart",
    "Slow",
    "Stall",
    "describe",
]

CrashKind: TypeAlias = Literal["process", "machine"]


class _Fault(msgspec.Struct, frozen=True):
    def __post_init__(self) -> None:
        at, until = getattr(self, "at", 0.0), getattr(self, "until", math.inf)
        if not 0 <= at <= until:
            raise InvalidRequest(f"{self!r}: give 0 <= at <= until, in seconds")


class Crash(_Fault, frozen=True):
    """A member ends without a word.

    kind "process": its machine lives and refuses streams at once.  kind "machine": nothing answers, and
    streams to it fail by timeout.
    """

    address: Address
    at: float
    kind: CrashKind = "process"


class Restart(_Fault, frozen=True):
    """A member that crashed or left starts again, as what its factory makes."""

    address: Address
    at: float


class Join(_Fault, frozen=True):
    """A member that was added with `at=math.inf` starts."""

    address: Address
    at: float


class Leave(_Fault, frozen=True):
    """A member says goodbye (`leave(now)`), and its process ends once it `has_left`."""

    address: Address
    at: float


class Partition(_Fault, frozen=True):
    """Groups that cannot reach each other.  Whoever is in none of them is in one more group."""

    groups: tuple[tuple[Address, ...], ...]
    at: float
    until: float = math.inf

    def __post_init__(self) -> None:
        super().__post_init__()
        Cut(groups=self.groups)  # says what is wrong with them, if anything is


class OneWay(_Fault, frozen=True):
    """Nothing gets from the senders to the receivers; the other way is open."""

    senders: tuple[Address, ...]
    receivers: tuple[Address, ...]
    at: float
    until: float = math.inf


class Heal(_Fault, frozen=True):
    """Every partition and every blocked way ends."""

    at: float


class Stall(_Fault, frozen=True):
    """A member is stopped: it handles nothing and sends nothing; what arrives waits, as far as it fits.

    With `stopped_s` it is stopped again and again: for that long, then it runs for `running_s`, until
    `until`.  With `timers_run` only its messages are held up, in and out, while its timers go on: this
    is the slow member of the Lifeguard paper, which blames others for answers that it did not read.
    """

    address: Address
    at: float
    until: float
    stopped_s: float | None = None
    running_s: float = 0.0
    timers_run: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.until == math.inf:
            raise InvalidRequest(f"{self!r}: a stall ends; what never runs again is a Crash")
        if self.stopped_s is not None and not (self.stopped_s > 0 and self.running_s > 0):
            raise InvalidRequest(f"{self!r}: give stopped_s > 0 and running_s > 0")


class Slow(_Fault, frozen=True):
    """Each message costs a member `service_s` of its time.

    Of two that overlap, the one that began or ended last counts.
    """

    address: Address
    service_s: float
    at: float
    until: float = math.inf


class Loss(_Fault, frozen=True):
    """This share of all datagrams is lost: of these members, in and out, or (empty) of everyone.

    Of two that overlap and are about the same, the one that began or ended last counts.
    """

    loss: float
    at: float
    until: float = math.inf
    members: tuple[Address, ...] = ()


class Drift(_Fault, frozen=True):
    """A member's clock runs faster (0.01: by 1 %) or slower (-0.01) from now on."""

    address: Address
    drift: float
    at: float


Fault: TypeAlias = (
    Crash | Restart | Join | Leave | Partition | OneWay | Heal | Stall | Slow | Loss | Drift
)


def describe(fault: Fault) -> str:
    """What it is, in a few words.

    >>> describe(Partition((("a", "b"), ("c",)), at=1.0, until=5.0))
    'partition 2 | 1 until 5 s'
    """
    ends = getattr(fault, "until", math.inf)
    until = "" if ends == math.inf else f" until {ends:g} s"
    match fault:
        case Crash():
            return f"crash of {fault.address}" + (" (machine)" if fault.kind == "machine" else "")
        case Partition():
            sizes = [str(len(group)) for group in fault.groups]
            return f"partition {' | '.join(sizes if len(sizes) > 1 else [*sizes, 'the rest'])}{until}"
        case OneWay():
            return f"blocked: {len(fault.senders)} to {len(fault.receivers)}{until}"
        case Heal():
            return "all ways healed"
        case Stall() if fault.stopped_s is not None:
            how = "is held up" if fault.timers_run else "stops"
            return f"{fault.address} {how} {fault.stopped_s:g} s, runs {fault.running_s:g} s{until}"
        case Stall():
            return f"{fault.address} is {'held up' if fault.timers_run else 'stopped'}{until}"
        case Slow():
            return f"{fault.address} needs {fault.service_s:g} s per message{until}"
        case Loss():
            of = f" of {len(fault.members)} members" if fault.members else ""
            return f"loss of {fault.loss:.0%}{of}{until}"
        case Drift():
            return f"clock of {fault.address} drifts by {fault.drift:+.2%}"
        case _:
            return f"{type(fault).__name__.lower()} of {fault.address}"
