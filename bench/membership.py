"""Membership without a store: what it costs, how fast it is, and how often it is wrong.

The clusters are simulated, so all but the wall time is the same on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from bench import membership_agents, membership_gossip, membership_phi
from bench.membership_false import VARIANTS, Alarms, Case, count_alarms
from bench.membership_load import Calm, Crashes, Load, Plan, calm, watch_crashes
from bench.results import Section, Table, Target, count, duration
from bench.rounds import Settings

__all__ = ["CRASHES_MIN", "PERIODS_EXPECTED", "Membership", "measure", "measure_swim", "section"]

# The SWIM paper's expectation: of n members, each of which picks one of the others in every period,
# nobody picks a certain one with the chance 1/e.
PERIODS_EXPECTED = math.e / (math.e - 1)

# With fewer crashes, their average says little of how many intervals it takes.
CRASHES_MIN = 20

_PLANS = (
    Plan(members=16, calm_s=600, crashes=2, seeds=60),
    Plan(members=128, calm_s=180, crashes=8, seeds=6),
    Plan(members=1_024, calm_s=60, crashes=6, seeds=1),
    Plan(members=8_192, calm_s=55, crashes=3, seeds=1),
)
_PLANS_QUICK = (
    Plan(members=16, calm_s=30, crashes=2, seeds=3),
    Plan(members=64, calm_s=30, crashes=2, seeds=1),
)

_LOSSES = (0.0, 0.01, 0.05, 0.20)

_NOTE = """\
Simulated clusters that start converged, on a network with 0.3 to 1.5 ms one way, with the default
settings (a probe each second). Packets and bytes are those that one member sends, without the envelope
of the runtime and network headers. Times are in probe intervals. The time until a member is probed
counts whole intervals, including the last one, as in the SWIM paper. In a crash the machine fails, so
nothing comes back. FP (false positive) is a healthy, live member that is declared dead at some member;
FP- counts only those at healthy members. A rumour that reaches all members counts once for each. SWIM
is this implementation without Lifeguard; "ours" is Lifeguard, and in addition a member that was paused
does not suspect others for it. [membership-figures](membership-figures.md) explains each term, what the
papers measured, and the tables of gossip, phi accrual and agents."""


def _cases(*, quick: bool) -> list[Case]:
    cases = []
    spans = ((16, 60.0, 60.0),) if quick else ((16, 1_200.0, 300.0), (128, 30.0, 60.0))
    for members, loss_s, slow_s in spans:
        cases += [
            Case(f"{loss:.0%} loss", members, loss_s, loss=loss, stream_probe=stream_probe)
            for stream_probe in (True, False)
            for loss in _LOSSES
        ]
        for away, off_s, on_s in (
            ("blocked", 8.0, 0.001),
            ("blocked", 16.0, 0.1),
            ("stopped", 16.0, 0.001),
        ):
            name = f"5 % slow: {away} {off_s:g} s, on {1000 * on_s:g} ms"
            cases.append(Case(name, members, slow_s, slow=0.05, away=away, off_s=off_s, on_s=on_s))
    return cases if quick else [*cases, *_large_cases()]


def _large_cases() -> list[Case]:
    """Of large clusters what can be waited for: with many suspicions there are n * n events."""
    both = ("SWIM", "ours")
    losses = [(1_024, loss) for loss in _LOSSES] + [(8_192, loss) for loss in _LOSSES[:-1]]
    slow = Case(
        "5 % slow: blocked 16 s, on 100 ms",
        1_024,
        40.0,
        slow=0.05,
        off_s=16.0,
        on_s=0.1,
        variants=both,
    )
    return [
        *(Case(f"{loss:.0%} loss", size, 30.0, loss=loss, variants=both) for size, loss in losses),
        slow,
    ]


@dataclass(frozen=True, slots=True)
class Membership(Section):
    """All of membership in one section; its parts, of which SWIM is the first, have a page."""

    parts: Sequence[Section] = ()


def measure(settings: Settings) -> Membership:
    """SWIM in simulated clusters, gossip, phi accrual, and agents in real processes."""
    parts = [
        measure_swim(settings),
        membership_gossip.measure(settings),
        membership_phi.measure(settings),
        membership_agents.measure(settings),
    ]
    return Membership(
        name="membership",
        title="Membership",
        note=parts[0].note,
        tables=[table for part in parts for table in part.tables],
        targets=[target for part in parts for target in part.targets],
        data={part.name: part.data for part in parts},
        parts=parts,
    )


def measure_swim(settings: Settings) -> Section:
    """Simulated clusters of the SWIM core."""
    plans = _PLANS_QUICK if settings.quick else _PLANS
    calms: dict[int, Calm] = {}
    crashes: dict[int, Crashes] = {}
    for plan in plans:
        settings.report(f"membership: {plan.members:,} members")
        calms[plan.members] = calm(plan)
        crashes[plan.members] = watch_crashes(plan)
    alarms: list[tuple[Case, dict[str, Alarms]]] = []
    for case in _cases(quick=settings.quick):
        settings.report(f"membership: {case.members:,} members, {case.name}")
        alarms.append((case, {name: count_alarms(case, VARIANTS[name]) for name in case.variants}))
    return section(calms, crashes, alarms)


def section(
    calms: Mapping[int, Calm],
    crashes: Mapping[int, Crashes],
    alarms: Sequence[tuple[Case, Mapping[str, Alarms]]],
) -> Section:
    """The results, next to the goals."""
    return Section(
        name="swim",
        title="SWIM",
        note=_NOTE,
        tables=[_load_table(calms, crashes), _crash_table(calms, crashes), _alarm_table(alarms)],
        targets=_targets(calms, crashes, alarms),
        data={
            "calm": {str(members): asdict(each) for members, each in calms.items()},
            "crashes": {str(members): asdict(each) for members, each in crashes.items()},
            "alarms": [
                {"case": asdict(case), **{name: asdict(each) for name, each in counted.items()}}
                for case, counted in alarms
            ],
        },
    )


def _load_table(calms: Mapping[int, Calm], crashes: Mapping[int, Crashes]) -> Table:
    def cells(load: Load) -> list[str]:
        return [
            f"{load.packets:.2f}",
            f"{load.packet_bytes:.1f}",
            f"{load.streams:.4f}",
            f"{load.stream_bytes:.2f}",
        ]

    columns = ["packets/s", "bytes/s", "streams/s", "stream B/s"]
    rows = []
    for members, each in calms.items():
        crash = crashes[members]
        rows.append(
            [
                f"{members:,} members",
                *cells(each.load),
                f"{crash.extra_packets:.1f}",
                f"{crash.extra_bytes:,.0f}",
                f"{crash.extra_packets / math.log10(members):.1f}",
                duration(each.processor_s * 60 / each.simulated_s),
            ]
        )
    return Table(
        [
            "each member sends",
            *columns,
            "for a crash: packets",
            "bytes",
            "packets / log10 n",
            "processor time of a minute",
        ],
        rows,
    )


def _crash_table(calms: Mapping[int, Calm], crashes: Mapping[int, Crashes]) -> Table:
    rows = []
    for members, each in crashes.items():
        first = calms[members]
        rows.append(
            [
                f"{members:,} members",
                count(each.count),
                f"{first.rounds_to_probe:.2f} ± {first.rounds_error:.2f}",
                f"{each.rounds_to_probe:.2f} ± {each.rounds_error:.2f}"
                if each.count >= CRASHES_MIN
                else "few",
                f"{each.first_probe:.2f}",
                f"{each.first_suspected:.2f}",
                f"{each.all_suspected:.2f}",
                f"{each.all_suspected / math.log2(members):.3f}",
                f"{each.first_dead:.2f}",
                f"{each.all_dead:.2f}",
            ]
        )
    return Table(
        [
            "in probe intervals",
            "crashes",
            "probed in (any moment)",
            "probed in (crashes)",
            "first probe",
            "first suspicion",
            "to all",
            "/ log2 n",
            "first death",
            "to all",
        ],
        rows,
    )


def _alarm_table(alarms: Sequence[tuple[Case, Mapping[str, Alarms]]]) -> Table:
    rows = []
    for case, counted in alarms:
        name = case.name + ("" if case.stream_probe else ", datagrams only")
        cells = [f"{name}; {case.members:,} members, {case.seconds:g} s"]
        for variant in VARIANTS:
            each = counted.get(variant)
            cells += (
                ["not run"] * 3
                if each is None
                else [count(each.suspected), count(each.fp), count(each.fp_at_healthy)]
            )
        rows.append(cells)
    titles = [f"{name} {what}" for name in VARIANTS for what in ("suspected", "FP", "FP-")]
    return Table(["false alarms", *titles], rows)


def _targets(
    calms: Mapping[int, Calm],
    crashes: Mapping[int, Crashes],
    alarms: Sequence[tuple[Case, Mapping[str, Alarms]]],
) -> list[Target]:
    packets = [each.load.packets for each in calms.values()]
    sizes = [each.load.packet_bytes + each.load.stream_bytes for each in calms.values()]
    large = max(calms)
    minute = calms[large]
    blocked = [counted for case, counted in alarms if case.slow and case.away == "blocked"]
    plain = sum(counted["SWIM"].fp for counted in blocked)
    guarded = sum(counted["ours"].fp for counted in blocked)
    return [
        Target(
            "membership: packets per member and second, most over least of all sizes",
            max(packets) / min(packets),
            1.1,
            at_least=False,
            unit="",
        ),
        Target(
            "membership: bytes per member and second, most over least of all sizes",
            max(sizes) / min(sizes),
            1.1,
            at_least=False,
            unit="",
        ),
        Target(
            f"membership: first probed after a crash, {large:,} members (e/(e-1) is 1.58)",
            minute.rounds_to_probe,
            round(1.1 * PERIODS_EXPECTED, 2),
            at_least=False,
            unit="intervals",
        ),
        *_spread_targets(crashes),
        Target(
            "membership: false positives by slow members, SWIM over ours (0 counts as 1)",
            plain / max(1, guarded),
            20,
            at_least=True,
            unit="",
        ),
        Target(
            f"membership: a minute of {large:,} members on one core",
            minute.processor_s * 60 / minute.simulated_s,
            300,
            at_least=False,
            unit="s",
        ),
    ]


def _spread_targets(crashes: Mapping[int, Crashes]) -> list[Target]:
    """Whether what is added with every doubling is no more for large clusters than for small ones."""
    sizes = list(crashes)
    if len(sizes) < 3:
        return []

    def added(smaller: int, larger: int) -> float:
        more = crashes[larger].all_suspected - crashes[smaller].all_suspected
        return more / math.log2(larger / smaller)

    return [
        Target(
            f"membership: until all know, added by a doubling: {sizes[1]:,} to {sizes[-1]:,} members "
            f"over {sizes[0]} to {sizes[1]} (1 is log n)",
            added(sizes[1], sizes[-1]) / added(sizes[0], sizes[1]),
            1.25,
            at_least=False,
            unit="",
        )
    ]
