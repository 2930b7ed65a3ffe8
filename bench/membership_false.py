"""False alarms: members that live and are declared dead, without and with Lifeguard.

Counted as in the Lifeguard paper.  A false positive is one member being told that another is dead which
is well: neither crashed nor slow.  FP counts them at all members, FP- only at members that are well
themselves.  A rumour that reaches a hundred members counts a hundred times.

    python -m bench.membership_false --members 8192 --slow 0.05 --seconds 30 --variant SWIM

runs one case by itself: those that are too long for `make bench`, up to half an hour.
"""

from __future__ import annotations

import argparse
import gc
import math
import time
from dataclasses import dataclass

import msgspec

from bench.membership_load import cluster
from quoracy.membership.machine import Address
from quoracy.membership.model import MemberChange, MemberChangeKind
from quoracy.membership.settings import SwimSettings
from quoracy.membership.simulator import Network, Stall, World

__all__ = ["VARIANTS", "Alarms", "Case", "count_alarms"]

_FULL = SwimSettings()
# SWIM with a fixed suspicion; with all of Lifeguard; and with what we add to it.
VARIANTS: dict[str, SwimSettings] = {
    "SWIM": _FULL.without_lifeguard(),
    "Lifeguard": msgspec.structs.replace(_FULL, minds_pauses=False),
    "ours": _FULL,
}
_BEGIN_S = 10.0


@dataclass(frozen=True, slots=True)
class Case:
    """What is wrong with a cluster.

    slow: this share of its members is, in turns, `off_s` away and `on_s` back.  Away is "blocked":
    nothing it sends leaves it and nothing that arrives is handled, while its timers go on; or
    "stopped": its process stands still, timers and all.
    variants: with which of `VARIANTS` it is run.
    """

    name: str
    members: int
    seconds: float
    loss: float = 0.0
    stream_probe: bool = True
    slow: float = 0.0
    away: str = "blocked"
    off_s: float = 0.0
    on_s: float = 0.0
    seed: int = 1
    variants: tuple[str, ...] = tuple(VARIANTS)

    @property
    def slow_count(self) -> int:
        return math.ceil(self.members * self.slow)


@dataclass(frozen=True, slots=True)
class Alarms:
    """What was told of members that were well."""

    suspected: int
    fp: int
    fp_at_healthy: int


def count_alarms(case: Case, settings: SwimSettings) -> Alarms:
    """Run one case with these settings."""
    settings = msgspec.structs.replace(settings, stream_probe=case.stream_probe)
    world = World(case.seed, network=Network(loss=case.loss))
    rng = world.rng("who is slow")
    numbers = rng.sample(range(case.members), case.slow_count)
    slow = {f"m{number:05d}": _BEGIN_S + rng.random() * case.off_s for number in sorted(numbers)}

    cluster(case.members, case.seed, settings, world)
    blocked = case.away == "blocked"
    world.schedule(
        Stall(name, at, case.seconds, stopped_s=case.off_s, running_s=case.on_s, timers_run=blocked)
        for name, at in slow.items()
    )
    suspected = fp = fp_at_healthy = 0

    def on_event(_: float, address: Address, event: object) -> None:
        nonlocal suspected, fp, fp_at_healthy
        if not isinstance(event, MemberChange) or event.member.name in slow:
            return
        if event.kind is MemberChangeKind.SUSPECTED:
            suspected += 1
        elif event.kind is MemberChangeKind.DIED:
            fp += 1
            fp_at_healthy += address not in slow

    world.on_event = on_event
    # Members make no cycles, and looking for some among millions of objects takes a third of the time.
    gc.disable()
    try:
        world.run(until=case.seconds)
    finally:
        gc.enable()
    return Alarms(suspected, fp, fp_at_healthy)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.membership_false", description=__doc__)
    parser.add_argument("--members", type=int, default=1_024)
    parser.add_argument("--seconds", type=float, default=30.0, help="of the cluster's time")
    parser.add_argument("--loss", type=float, default=0.0, help="share of packets that are lost")
    parser.add_argument(
        "--slow", type=float, default=0.0, help="share of members: 16 s blocked, 0.1 s not"
    )
    parser.add_argument("--variant", choices=VARIANTS, default="ours")
    options = parser.parse_args()
    case = Case(
        name="one case",
        members=options.members,
        seconds=options.seconds,
        loss=options.loss,
        slow=options.slow,
        off_s=16.0,
        on_s=0.1,
    )
    alarms = count_alarms(case, VARIANTS[options.variant])
    print(f"suspected  {alarms.suspected:,}")
    print(f"FP         {alarms.fp:,}")
    print(f"FP-        {alarms.fp_at_healthy:,}")
    print(f"processor  {time.process_time():,.0f} s")


if __name__ == "__main__":
    main()
