"""A cell of three next to a ZooKeeper ensemble of three and a plain etcd cluster of three.

All three systems are up from the beginning to the end, and only one is asked at a time.  What the idle
ones take of the processors is measured and shown; a turn begins when nobody is busy with what was asked
before.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field

from bench.cell_systems import System, serve_cell, serve_ensemble, serve_etcds
from bench.cell_works import Kind, Run, Work, prepare_etcd, warm_up_zookeeper, works
from bench.results import Section, Table, Target, count, duration, ratio, size
from bench.rounds import Settings
from bench.zookeeper_crowd import allow_many_files

__all__ = ["Both", "measure", "section"]

_NOTE = """\
Three systems on one machine and its disk: ZooKeeper 3.8 as an ensemble of three, etcd 3.5 as a
cluster of three, and a cell, which is three more such etcds with a Quoracy node beside each. Requests
are spread over all three nodes of a system; a single client uses the leader's node in one round and
another node in the next. A ratio is the median of the ratios within each round. All systems run all
the time and take turns; the processor time of the idle ones is in the last table. At every ZooKeeper
port there is one additional session that only pings, ten times a second: without it ZooKeeper 3.8.0
sometimes delays a single client.

Through ZooKeeper's protocol: raw frames; "16 x 4" is 16 connections with 4 requests in flight each, on
nodes of 100 bytes. Every connection has its own node, but sequential nodes are all below one parent;
ephemeral nodes are created and deleted alternately, and both count. Through etcd's protocol: an h2load
for each node, every client with one call at a time, a key of 20 bytes and a value of 256. Locks are
kazoo's, in threads of one process, and Lock and Unlock of etcd's lock service, counted by the cycle.
Fan-out is the time from sending a write to one node until the last watcher, of all that are spread over
the three nodes, has its event. ZooKeeper's watchers have a connection each and set their watch again
for every write; etcd's share ten connections.

Processor time is that of all processes of a system per operation: three for ZooKeeper, three for etcd,
six for the cell. Clients and servers share the processors, so rates also depend on the other load;
only the processor time carries over to separate machines."""

_OURS = "Quoracy"
_BUSY = 0.3  # of a processor, by all systems together: somebody still works on what was asked before
_QUIET_WITHIN_S = 5.0
_LOOK_S = 0.1


@dataclass(slots=True)
class Both:
    """The runs of a peer and of the cell, round by round."""

    peer: list[Run] = field(default_factory=list)
    ours: list[Run] = field(default_factory=list)

    def pair(self, of: Callable[[Run], float]) -> tuple[float, float]:
        return statistics.median(map(of, self.peer)), statistics.median(map(of, self.ours))

    def ratio(self, of: Callable[[Run], float]) -> float:
        return statistics.median(
            of(mine) / of(theirs) for mine, theirs in zip(self.ours, self.peer, strict=True)
        )


@dataclass(frozen=True, slots=True)
class Standing:
    """A system by itself."""

    start_s: float
    idle_share: float
    idle_bytes: int
    loaded_bytes: int


Results = Sequence[tuple[Work, Both]]


def measure(settings: Settings) -> Section:
    allow_many_files()
    with ExitStack() as stack:
        systems: dict[str, System] = {}
        for serve in (serve_ensemble, serve_etcds, serve_cell):
            settings.report(f"cell: starting {len(systems) + 1} of 3")
            system = stack.enter_context(serve(settings.directory / f"cell-{serve.__name__}"))
            systems[system.name] = system
        shares = _idle_shares(settings, systems)
        idle = {name: system.resident_bytes for name, system in systems.items()}
        warm_ups = {
            name: warm_up_zookeeper(settings, system)
            for name, system in systems.items()
            if system.zookeeper_ports
        }
        for system in systems.values():
            if system.etcd_ports:
                prepare_etcd(system)
        results = [(work, _compare(settings, work, systems)) for work in works(settings)]
        standings = {
            name: Standing(system.start_s, shares[name], idle[name], system.resident_bytes)
            for name, system in systems.items()
        }
    return section(results, standings, warm_ups)


# -- the measurements


def _compare(settings: Settings, work: Work, systems: Mapping[str, System]) -> Both:
    both = Both()
    rounds = 1 if settings.quick else 3
    for turn in range(rounds):
        settings.report(f"cell: {work.name}, round {turn + 1} of {rounds}")
        for name in random.Random(turn).sample((work.peer, _OURS), 2):
            _wait_quiet(systems)
            runs = both.ours if name == _OURS else both.peer
            try:
                runs.append(work.run(systems[name], turn))
            except Exception as error:
                error.add_note(f"That was {name}, measured with: {work.name}.")
                raise
    return both


def _idle_shares(settings: Settings, systems: Mapping[str, System]) -> dict[str, float]:
    """What each takes of a processor when nobody asks anything."""
    settings.report("cell: looking at who is idle")
    _wait_quiet(systems)
    before, started = _spent(systems), time.perf_counter()
    time.sleep(1.0 if settings.quick else 5.0)
    took_s = time.perf_counter() - started
    return {name: (spent_s - before[name]) / took_s for name, spent_s in _spent(systems).items()}


def _wait_quiet(systems: Mapping[str, System]) -> None:
    give_up_at = time.perf_counter() + _QUIET_WITHIN_S
    before = sum(_spent(systems).values())
    while time.perf_counter() < give_up_at:
        time.sleep(_LOOK_S)
        spent_s = sum(_spent(systems).values())
        if spent_s - before < _BUSY * _LOOK_S:
            return
        before = spent_s


def _spent(systems: Mapping[str, System]) -> dict[str, float]:
    return {name: system.spent() for name, system in systems.items()}


# -- tables and targets


def section(
    results: Results,
    standings: Mapping[str, Standing],
    warm_ups: Mapping[str, Mapping[str, Sequence[float]]],
) -> Section:
    return Section(
        name="cell",
        title="A cell of three, a ZooKeeper ensemble and an etcd cluster",
        note=_NOTE,
        tables=[
            _loads_table(results, "zookeeper", "ZK"),
            _loads_table(results, "etcd", "etcd"),
            _cycles_table(results),
            _fan_out_table(results),
            _standings_table(standings),
        ],
        targets=_targets(results),
        data={
            "runs": {
                work.name: {
                    work.peer: [asdict(run) for run in both.peer],
                    _OURS: [asdict(run) for run in both.ours],
                }
                for work, both in results
            },
            "systems": {name: asdict(standing) for name, standing in standings.items()},
            "warm_up": {name: dict(rates) for name, rates in warm_ups.items()},
        },
    )


def _loads_table(results: Results, kind: Kind, peer: str) -> Table:
    rows = [
        [
            work.name,
            *map(count, both.pair(lambda run: run.rate)),
            ratio(both.ratio(lambda run: run.rate)),
            *map(duration, both.pair(lambda run: run.median_s)),
            *_processor_cells(both),
        ]
        for work, both in results
        if work.kind == kind
    ]
    columns = ["operation" if kind == "zookeeper" else "call", f"{peer}/s", "ours/s", "ratio"]
    return Table([*columns, f"{peer} p50", "ours", f"{peer} processor", "ours", "ratio"], rows)


def _cycles_table(results: Results) -> Table:
    rows = [
        [
            work.name,
            *map(count, both.pair(lambda run: run.rate)),
            ratio(both.ratio(lambda run: run.rate)),
            *_processor_cells(both),
        ]
        for work, both in results
        if work.kind == "lock"
    ]
    columns = ["taken and given back", "peer/s", "ours/s", "ratio"]
    return Table([*columns, "peer processor", "ours", "ratio"], rows)


def _fan_out_table(results: Results) -> Table:
    rows = [
        [
            work.name,
            *map(duration, both.pair(lambda run: run.median_s)),
            ratio(both.ratio(lambda run: run.median_s)),
            *_processor_cells(both),
        ]
        for work, both in results
        if work.kind == "fan-out"
    ]
    columns = ["until the last has heard", "peer", "ours", "ratio"]
    return Table([*columns, "peer processor", "ours", "ratio"], rows)


def _processor_cells(both: Both) -> list[str]:
    peer_s, our_s = both.pair(lambda run: run.spent_s)
    # The kernel counts in hundredths: of a short run with little to do there may be nothing to see.
    share = ratio(our_s / peer_s) if peer_s else "-"
    return [duration(peer_s), duration(our_s), share]


def _standings_table(standings: Mapping[str, Standing]) -> Table:
    rows = [
        [
            name,
            duration(standing.start_s),
            f"{standing.idle_share:.1%}",
            size(standing.idle_bytes),
            size(standing.loaded_bytes),
        ]
        for name, standing in standings.items()
    ]
    columns = ["all processes together", "start", "of a processor, idle", "memory, idle"]
    return Table([*columns, "memory, after the load"], rows)


def _targets(results: Results) -> list[Target]:
    """Reads next to ZooKeeper's, writes next to what etcd does by itself."""
    targets = []
    for work, both in results:
        rate = both.ratio(lambda run: run.rate)
        if work.name.startswith("getData, "):
            targets.append(Target(f"cell: {work.name}, rate over ZooKeeper's", rate, 2.0, True, ""))
        elif work.name.startswith("put, "):
            targets.append(Target(f"cell: {work.name}, rate over etcd's", rate, 0.7, True, ""))
    return targets
