"""How fast gossip reaches everyone, and what it costs: push, pull and push-pull, next to theory."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.plot import INK, MUTED, STYLE
from bench.results import Section, Table, count
from bench.rounds import Settings
from quoracy.membership.gossip import Gossip, GossipMode, GossipSettings, StateChanged
from quoracy.membership.gossip.messages import Delta, Entry, News, encode
from quoracy.membership.machine import Effect, Machine, SendPacket, SendStream
from quoracy.membership.simulator import Constant, Network, World

__all__ = ["draw", "measure", "rounds_in_theory"]

_SIZES = (16, 128, 1_024, 8_192)
_QUICK_SIZES = (16, 128)
_LOSSES = (0.0, 0.2)
_MODES = (GossipMode.PUSH, GossipMode.PULL, GossipMode.PUSH_PULL)
# How many datagrams must arrive so that the one who asks learns; and the one who is asked.
_ASKING, _ASKED = 4, 5

_NOTE = """\
One member of n writes one key; the others are simulated members that run the very code that real ones
do. A round is one random peer for each member, all at the same time; this is how theory counts. Rounds
are the median of several runs. Theory (leading terms only): every round those who know grow by a
factor, log n of it to reach half of all; then push still needs ln n rounds for the last ones (Pittel,
1987), while pull squares the fraction that does not know, in about log2 ln n (Demers and others, 1987;
Karp and others, 2000). With loss, a comparison succeeds if all its datagrams arrive: four for the one
who asks, five for the one who is asked, since equal state must cost one small packet; so pull alone
suffers most from loss, and its tail is no longer squared. Packets and bytes are for each member until
all know, without the headers of UDP."""

_NOTE_MIXED = """\
As it is used (`mixed`: rumours to three peers every 0.2 s while they are new, and one comparison each
second), on a network with a latency of one millisecond."""


@dataclass(frozen=True, slots=True)
class Spread:
    """One run: how long until all knew, and what it took."""

    members: int
    mode: str
    loss: float
    rounds: float
    packets: float
    bytes: float


def measure(settings: Settings) -> Section:
    sizes = _QUICK_SIZES if settings.quick else _SIZES
    found: list[Spread] = []
    for members in sizes:
        for mode in _MODES:
            for loss in _LOSSES:
                settings.report(f"gossip: {members:,} members, {mode.value}, {loss:.0%} loss")
                found.append(_median_of(members, mode, loss))
    mixed = [
        _median_of(members, GossipMode.MIXED, loss, _runs(members))
        for members in sizes
        for loss in _LOSSES
    ]
    settings.report("gossip: cost of one comparison")
    costs = [_cost(owners) for owners in sizes]
    return Section(
        name="gossip",
        title="Gossip",
        note=f"{_NOTE} The second table: {_NOTE_MIXED} The third: what one comparison of two members "
        "costs, by how many owners they know.",
        tables=[_spread_table(found), _mixed_table(mixed), _cost_table(costs)],
        data={
            "spread": [asdict(run) for run in found],
            "mixed": [asdict(run) for run in mixed],
            "costs": costs,
        },
    )


def rounds_in_theory(members: int, mode: GossipMode, loss: float) -> float:
    """Leading terms; `asking` and `asked` are the chances that a contact makes one learn."""
    arrives = 1.0 - loss
    asking = 0.0 if mode is GossipMode.PUSH else arrives**_ASKING
    asked = {GossipMode.PUSH: arrives, GossipMode.PULL: 0.0}.get(mode, arrives**_ASKED)
    growing = math.log(members) / math.log(1.0 + asking + asked)
    if asking == 1.0:
        return growing + math.log2(math.log(members))
    stays_ignorant = (1.0 - asking) * math.exp(-asked)
    return growing + math.log(members) / -math.log(stays_ignorant)


# -- spreading


def _runs(members: int) -> int:
    return 1 if members > 2_000 else 3 if members > 200 else 15


def _median_of(members: int, mode: GossipMode, loss: float, runs: int = 0) -> Spread:
    spread = _spread_by_default if mode is GossipMode.MIXED else _spread_in_rounds
    found = [spread(members, mode, loss, seed) for seed in range(runs or _runs(members))]
    return Spread(
        members,
        mode.value,
        loss,
        rounds=statistics.median(run.rounds for run in found),
        packets=statistics.mean(run.packets for run in found),
        bytes=statistics.mean(run.bytes for run in found),
    )


def _spread_in_rounds(members: int, mode: GossipMode, loss: float, seed: int) -> Spread:
    """All in step, as in theory: a round is a second."""
    settings = GossipSettings(
        mode=mode, exchange_interval_s=1.0, push_interval_s=1.0, push_fanout=1, push_mult=1_000
    )
    # What is pushed in one round is known in the next.  A comparison is over within its round, and
    # what it compares is what was known when the round began.
    is_push = mode is GossipMode.PUSH
    network = Network(loss=loss, latency=Constant(1.0 if is_push else 0.001))
    wrote_at, known_at, world = _spread(members, settings, network, seed, 0.0 if is_push else 0.5)
    rounds = round(known_at - wrote_at) if is_push else math.floor(known_at)
    return _result(world, members, mode, loss, rounds)


def _spread_by_default(members: int, mode: GossipMode, loss: float, seed: int) -> Spread:
    network = Network(loss=loss, latency=Constant(0.001))
    settings = GossipSettings(mode=mode)
    wrote_at, known_at, world = _spread(members, settings, network, seed, 0.5, in_step=False)
    return _result(world, members, mode, loss, known_at - wrote_at)


def _result(world: World, members: int, mode: GossipMode, loss: float, rounds: float) -> Spread:
    sent = world.counters()
    return Spread(
        members, mode.value, loss, rounds, sent.packets_sent / members, sent.bytes_sent / members
    )


def _spread(
    members: int,
    settings: GossipSettings,
    network: Network,
    seed: int,
    wrote_at: float,
    *,
    in_step: bool = True,
) -> tuple[float, float, World]:
    """When one wrote, when the last one knew, and the world in which that was."""
    world = World(seed, network=network)
    names = tuple(f"m{number}" for number in range(members))
    knew_at: list[float] = []

    def seen(time: float, address: str, event: object) -> None:
        del address
        assert isinstance(event, StateChanged)
        knew_at.append(time)

    world.on_event = seen
    for name in names:
        gossip = Gossip(
            name,
            generation=1_700_000_000_000_000,  # as large as times are
            rng=world.rng(name),
            settings=settings,
            peers=() if in_step else names,
        )
        world.add(name, gossip)
    world.run(0.0)
    if in_step:  # the first peers make a member compare at once, so all go on from here
        for name in names:
            world.call(name, lambda machine, _: _know(machine, names))
    world.run(wrote_at)
    world.call(names[0], lambda machine, now: _gossip(machine).set("key", b"v" * 32, now))
    known = world.run_until(lambda: len(knew_at) >= members - 1, until=500.0, every_s=0.1)
    assert known, f"{members} members, seed {seed}: not all know after 500 s"
    return wrote_at, knew_at[-1], world


def _gossip(machine: Machine) -> Gossip:
    assert isinstance(machine, Gossip)
    return machine


def _know(machine: Machine, peers: tuple[str, ...]) -> list[Effect]:
    _gossip(machine).set_peers(peers)
    return []


# -- what comparing costs


def _cost(owners: int) -> dict[str, int]:
    """Packets and bytes of one comparison: of two that know the same, or all but one the same."""
    found = {"owners": owners}
    for what, version in (("equal", 1), ("differing", 2)):
        a, b = _knowing("a", owners, 1), _knowing("b", owners, version)
        a.set_peers(("b",))
        sent = _carried(a, b)
        found[f"{what}_packets"] = len(sent)
        found[f"{what}_bytes"] = sum(map(len, sent))
        assert a.root == b.root
    return found


def _knowing(name: str, owners: int, first_version: int) -> Gossip:
    gossip = Gossip(
        name,
        generation=1,
        rng=random.Random(name),
        settings=GossipSettings(mode=GossipMode.PUSH_PULL),
    )
    gossip.start(0.0)
    for number in range(owners):
        version = first_version if number == 0 else 1
        entry = Entry("key", version, b"v" * 32)
        delta = Delta(f"member-{number}", 1_700_000_000_000_000, 0, version, 0, [entry])
        gossip.receive(encode(News([delta])), "", 0.0)
    return gossip


def _carried(a: Gossip, b: Gossip) -> list[bytes]:
    """What goes to and fro after `a` begins a comparison."""
    machines = {"a": a, "b": b}
    waiting = [("a", effect) for effect in a.tick(0.0)]
    sent = []
    while waiting:
        sender, effect = waiting.pop(0)
        if isinstance(effect, SendPacket | SendStream):
            sent.append(effect.data)
            receiver = machines[effect.to]
            receive = receiver.receive if isinstance(effect, SendPacket) else receiver.receive_stream
            waiting += [(effect.to, answer) for answer in receive(effect.data, sender, 0.0)]
    return sent


# -- tables and picture


def _spread_table(found: Sequence[Spread]) -> Table:
    rows = []
    for run in found:
        theory = rounds_in_theory(run.members, GossipMode(run.mode), run.loss)
        rows.append(
            [
                f"{run.members:,} members, {run.mode}, {run.loss:.0%} loss",
                f"{run.rounds:g}",
                f"{theory:.1f}",
                f"{run.packets:.1f}",
                count(run.bytes),
            ]
        )
    return Table(["until all know", "rounds", "theory", "packets per member", "bytes per member"], rows)


def _mixed_table(found: Sequence[Spread]) -> Table:
    return Table(
        ["until all know, as it is used", "seconds", "packets per member", "bytes per member"],
        [
            [
                f"{run.members:,} members, {run.loss:.0%} loss",
                f"{run.rounds:.2f}",
                f"{run.packets:.1f}",
                count(run.bytes),
            ]
            for run in found
        ],
    )


def _cost_table(costs: Sequence[Mapping[str, int]]) -> Table:
    columns = ("equal_packets", "equal_bytes", "differing_packets", "differing_bytes")
    return Table(
        ["owners known", "equal: packets", "bytes", "one differs: packets", "bytes"],
        [[f"{cost['owners']:,}", *(f"{cost[column]:,}" for column in columns)] for cost in costs],
    )


_COLOURS = {"push": "#d08a3c", "pull": "#8a9099", "push-pull": "#2563b0"}


def draw(data: Mapping[str, Any], caption: str, path: Path) -> None:
    """`data` is that of the section: rounds by number of members, without loss and with it."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.ticker import MaxNLocator

    with plt.rc_context(STYLE):
        figure, panels = plt.subplots(
            1, 2, figsize=(11, 4.4), layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.08)
        )
        for axes, loss in zip(panels, _LOSSES, strict=True):
            runs = [run for run in data["spread"] if run["loss"] == loss]
            sizes = sorted({run["members"] for run in runs})
            for mode, colour in _COLOURS.items():
                rounds = [run["rounds"] for run in runs if run["mode"] == mode]
                theory = [rounds_in_theory(size, GossipMode(mode), loss) for size in sizes]
                axes.plot(sizes, rounds, marker="o", linewidth=2.2, color=colour, label=mode)
                axes.plot(sizes, theory, linewidth=1.2, linestyle=(0, (4, 3)), color=colour)
            axes.plot([], [], linewidth=1.2, linestyle=(0, (4, 3)), color=INK, label="theory")
            axes.set_xscale("log", base=2)
            axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
            axes.set_xticks([], minor=True)
            axes.set_ylim(bottom=0)
            axes.yaxis.set_major_locator(MaxNLocator(integer=True))
            axes.set_title("Without loss" if not loss else f"With {loss:.0%} loss")
            axes.set_xlabel("members")
            axes.set_ylabel("rounds until all know")
            axes.grid(axis="y", color="#e6e8eb", linewidth=0.8)
            axes.legend(loc="upper left", fontsize=9)
        figure.supxlabel(caption, fontsize=8, color=MUTED)
        figure.savefig(path, dpi=150)
        plt.close(figure)
