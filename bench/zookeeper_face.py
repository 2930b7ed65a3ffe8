"""The ZooKeeper face next to a real ZooKeeper 3.8: the same clients, bytes and disk, taking turns."""

from __future__ import annotations

import os
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field

from bench.results import Section, Table, Target, count, duration, ratio, size
from bench.rounds import Settings
from bench.servers import IDLE_S, Server, idle_bytes, serve_quoracy_zookeeper, serve_zookeeper
from bench.zookeeper_crowd import allow_many_files, fan_out_s, sessions_s
from bench.zookeeper_load import Load, load
from bench.zookeeper_locks import lock_cycles_rate
from bench.zookeeper_operations import OPERATIONS, Operation

__all__ = ["measure"]

_NOTE = """\
Raw frames from one process that does little but send them; "16 x 4" is 16 connections with 4 requests
in flight each, where each reply makes room for the next request. Nodes hold 100 bytes unless noted;
every connection has its own node, but sequential nodes are all below one parent. Ephemeral nodes are
created and deleted alternately, and both count. Both servers write durably to the same disk, ZooKeeper
with the settings and Java options of Debian's package (no administration server, any number of
connections), and take turns after a warm-up, whose rates per second are shown: a Java program is slow
until its code is compiled.

Clients and server share the processors. Beside the rate there is therefore the processor time of the
server's process. "Busy" is the server, the load generator, and the whole machine, where 1.00 is one
processor. The limit is the generator if it was always busy, the machine if all processors were, the
server if it kept at least one busy, and otherwise waiting, for example for the disk.

Fan-out is the time from sending a setData until the last of the watchers, a connection each, has its
event. Sessions are opened 32 at a time. Locks are kazoo's, in threads of one process. Memory is that of
the process: with its first session, after it was idle for some seconds (ours has then released what it
does not use), and after all of this."""

_PEER, _OURS = "ZooKeeper", "Quoracy"

_WARM_UP_SHAPE = (16, 16)

# Of a processor's time: who has so much of it does not wait for anybody.
_BUSY = 0.9


@dataclass(frozen=True, slots=True)
class _Work:
    """What is measured, and for how many seconds a server is warmed up with it."""

    name: str
    operation: Callable[[], Operation]
    warm_up_s: int


_WORKS = (
    _Work("getData", lambda: OPERATIONS["getData"](100), 6),
    _Work("getData 1 KiB", lambda: OPERATIONS["getData"](1024), 1),
    _Work("setData", lambda: OPERATIONS["setData"](100), 5),
    _Work("create sequential", lambda: OPERATIONS["createSequential"](100), 2),
    _Work("ephemeral create, delete", lambda: OPERATIONS["ephemeral"](100), 2),
)

_STARTING, _IDLE = "from start to the first session", f"memory, idle for {IDLE_S:g} s"

_Shape = tuple[int, int]  # connections, requests in flight on each


@dataclass(slots=True)
class _Both:
    """The runs of both servers, round by round."""

    runs: dict[str, list[Load]] = field(default_factory=lambda: {_PEER: [], _OURS: []})

    def median(self, name: str, of: Callable[[Load], float]) -> float:
        return statistics.median(map(of, self.runs[name]))

    def pair(self, of: Callable[[Load], float]) -> tuple[float, float]:
        return self.median(_PEER, of), self.median(_OURS, of)

    def ratio(self, of: Callable[[Load], float]) -> float:
        return statistics.median(
            of(mine) / of(theirs)
            for mine, theirs in zip(self.runs[_OURS], self.runs[_PEER], strict=True)
        )


@dataclass(frozen=True, slots=True)
class _Figure:
    """One number of each server, by its name."""

    what: str
    values: Mapping[str, float]
    show: Callable[[float], str]
    more_is_better: bool = False

    @property
    def ratio(self) -> float:
        return self.values[_OURS] / self.values[_PEER]


_Results = Mapping[tuple[str, _Shape], _Both]
_WarmUps = Mapping[str, Mapping[str, Sequence[float]]]  # by the name of the server, then of the work


def measure(settings: Settings) -> Section:
    allow_many_files()
    shapes = ((1, 1), (16, 16)) if settings.quick else ((1, 1), (16, 1), (16, 16), (200, 1))
    figures = [_starts(settings)]
    with ExitStack() as stack:
        servers = [
            stack.enter_context(serve_zookeeper(settings.directory / "zookeeper")),
            stack.enter_context(serve_quoracy_zookeeper(settings.directory / "zookeeper.db")),
        ]
        figures.append(_memory("memory, with the first session", servers))
        figures.append(_Figure(_IDLE, idle_bytes(settings, servers), size))
        warm_ups = {server.name: _warm_up(settings, server) for server in servers}
        results = {
            (work.name, shape): _compare(settings, work, shape, servers)
            for work in _WORKS
            for shape in shapes
        }
        figures += _crowds(settings, servers)
        figures += [_locks(settings, servers, clients) for clients in (1, 8)]
        figures.append(_memory("memory, after the load", servers))
    return Section(
        name="zookeeper",
        title="The ZooKeeper face and ZooKeeper 3.8",
        note=_NOTE,
        tables=[
            _loads_table(results),
            _processor_table(results),
            _figures_table(figures),
            _warm_up_table(warm_ups),
        ],
        targets=_targets(results, figures),
        data=_data(results, figures, warm_ups),
    )


# -- the measurements


def _starts(settings: Settings) -> _Figure:
    """From nothing to the first session, each time with a store that is new."""
    times: dict[str, list[float]] = {}
    for number in range(1 if settings.quick else 9):
        settings.report(f"zookeeper: start {number + 1}")
        for serve in (serve_zookeeper, serve_quoracy_zookeeper):
            with serve(settings.directory / f"start-{number}-{serve.__name__}") as server:
                times.setdefault(server.name, []).append(server.start_s)
    return _Figure(_STARTING, _settled(times), duration)


def _memory(what: str, servers: Sequence[Server]) -> _Figure:
    return _Figure(what, {server.name: server.resident_bytes for server in servers}, size)


def _warm_up(settings: Settings, server: Server) -> Mapping[str, Sequence[float]]:
    """The rates by the second, until they hardly change: by then the JVM has compiled what is hot."""
    connections, in_flight = _WARM_UP_SHAPE
    rates = {}
    for work in _WORKS:
        settings.report(f"zookeeper: warming up {server.name}, {work.name}")
        rates[work.name] = [
            _load(server, work, (connections, in_flight), 0.3 if settings.quick else 1.0).rate
            for _ in range(1 if settings.quick else work.warm_up_s)
        ]
    return rates


def _compare(settings: Settings, work: _Work, shape: _Shape, servers: Sequence[Server]) -> _Both:
    both = _Both()
    rounds, seconds = (1, 0.3) if settings.quick else (5, 1.2)
    for number in range(rounds):
        settings.report(f"zookeeper: {work.name}, {_shown(shape)}, round {number + 1} of {rounds}")
        for server in random.Random(number).sample(servers, len(servers)):
            both.runs[server.name].append(_load(server, work, shape, seconds))
    return both


def _load(server: Server, work: _Work, shape: _Shape, seconds: float) -> Load:
    connections, in_flight = shape
    return load(
        _address(server),
        work.operation(),
        connections=connections,
        in_flight=in_flight,
        seconds=seconds,
        pid=server.process.pid,
    )


def _crowds(settings: Settings, servers: Sequence[Server]) -> list[_Figure]:
    number, rounds, writes = (100, 1, 3) if settings.quick else (1_000, 4, 10)
    opening: dict[str, list[float]] = {server.name: [] for server in servers}
    telling: dict[str, list[float]] = {server.name: [] for server in servers}
    for at in range(rounds):
        settings.report(f"zookeeper: {number} clients, round {at + 1} of {rounds}")
        for server in random.Random(at).sample(servers, len(servers)):
            opening[server.name].append(sessions_s(_address(server), number=number))
            telling[server.name].append(fan_out_s(_address(server), watchers=number, writes=writes))
    took_s = _settled(opening)
    rates = {name: number / each for name, each in took_s.items()}
    return [
        _Figure(f"{number:,} sessions opened", took_s, duration),
        _Figure("sessions opened, /s", rates, count, more_is_better=True),
        _Figure(f"one write seen by {number:,} watchers", _settled(telling), duration),
    ]


def _locks(settings: Settings, servers: Sequence[Server], clients: int) -> _Figure:
    rounds, seconds = (1, 0.3) if settings.quick else (4, 1.0)
    rates: dict[str, list[float]] = {server.name: [] for server in servers}
    what = f"kazoo's lock, taken and released by {clients}, /s"
    for at in range(rounds):
        settings.report(f"zookeeper: {what}, round {at + 1} of {rounds}")
        for server in random.Random(at).sample(servers, len(servers)):
            rate = lock_cycles_rate(_address(server), clients=clients, seconds=seconds)
            rates[server.name].append(rate)
    return _Figure(what, _settled(rates), count, more_is_better=True)


def _address(server: Server) -> tuple[str, int]:
    return "127.0.0.1", server.port


def _settled(values: Mapping[str, Sequence[float]]) -> Mapping[str, float]:
    """The median without the first round, if there are more: that was the warm-up."""
    return {name: statistics.median(each[1:] or each) for name, each in values.items()}


# -- the tables


def _loads_table(results: _Results) -> Table:
    rows = []
    for (name, shape), both in results.items():
        peer_rate, rate = both.pair(lambda run: run.rate)
        peer_median, median = both.pair(lambda run: run.median_s)
        peer_p99, p99 = both.pair(lambda run: run.p99_s)
        rows.append(
            [
                f"{name}, {_shown(shape)}",
                count(peer_rate),
                count(rate),
                ratio(both.ratio(lambda run: run.rate)),
                duration(peer_median),
                duration(median),
                duration(peer_p99),
                duration(p99),
            ]
        )
    return Table(["operation", "ZK/s", "ours/s", "ratio", "ZK p50", "ours", "ZK p99", "ours"], rows)


def _processor_table(results: _Results) -> Table:
    rows = []
    for (name, shape), both in results.items():
        peer_cost, cost = both.pair(lambda run: run.server_s_per_1000)
        peer_yield, own_yield = both.pair(lambda run: run.rate_per_server_s)
        rows.append(
            [
                f"{name}, {_shown(shape)}",
                duration(peer_cost),
                duration(cost),
                count(peer_yield),
                count(own_yield),
                ratio(both.ratio(lambda run: run.rate_per_server_s)),
                _busy(both, _PEER),
                _busy(both, _OURS),
                _limit(both, _PEER),
                _limit(both, _OURS),
            ]
        )
    columns = ["the server's processor time", "ZK for 1,000", "ours", "ZK ops a second of it", "ours"]
    return Table([*columns, "ratio", "ZK busy", "ours", "ZK limit", "ours"], rows)


def _figures_table(figures: Sequence[_Figure]) -> Table:
    rows = [
        [
            figure.what,
            figure.show(figure.values[_PEER]),
            figure.show(figure.values[_OURS]),
            ratio(figure.ratio),
        ]
        for figure in figures
    ]
    return Table(["", _PEER, _OURS, "ratio"], rows)


def _warm_up_table(warm_ups: _WarmUps) -> Table:
    seconds = max(len(rates) for works in warm_ups.values() for rates in works.values())
    rows = [
        [f"{name}, {server}", *map(count, rates), *[""] * (seconds - len(rates))]
        for server, works in warm_ups.items()
        for name, rates in works.items()
    ]
    columns = [f"warm-up, {_shown(_WARM_UP_SHAPE)}, /s in second"]
    return Table([*columns, *map(str, range(1, seconds + 1))], rows)


def _shown(shape: _Shape) -> str:
    connections, in_flight = shape
    return f"{connections} x {in_flight}"


def _busy(both: _Both, name: str) -> str:
    server, generator, machine = _shares(both, name)
    return f"{server:.2f} + {generator:.2f} of {machine:.2f}"


def _limit(both: _Both, name: str) -> str:
    server, generator, machine = _shares(both, name)
    if generator >= _BUSY:
        return "generator"
    if machine >= _BUSY * (os.cpu_count() or 1):
        return "machine"
    return "server" if server >= _BUSY else "waiting"


def _shares(both: _Both, name: str) -> tuple[float, float, float]:
    return (
        both.median(name, lambda run: run.server_share),
        both.median(name, lambda run: run.generator_share),
        both.median(name, lambda run: run.machine_share),
    )


# -- the targets, and everything for a file


# Over ZooKeeper's, where it is not simply to be no worse.
_READ_RATE, _WRITE_RATE, _LONE_WRITE_RATE = 1.5, 1.2, 1.0
_START, _IDLE_MEMORY = 0.33, 0.33


def _targets(results: _Results, figures: Sequence[_Figure]) -> list[Target]:
    targets = []
    for (name, shape), both in results.items():
        what = f"{name}, {_shown(shape)}"
        reads, alone = name.startswith("getData"), shape == (1, 1)
        least = _READ_RATE if reads else _LONE_WRITE_RATE if alone else _WRITE_RATE
        rate, p99 = both.ratio(lambda run: run.rate), both.ratio(lambda run: run.p99_s)
        targets.append(Target(f"{what}: rate over ZooKeeper's", rate, least, True, ""))
        if reads:  # where the generator is the limit, this is what tells
            cheap = both.ratio(lambda run: run.rate_per_server_s)
            targets.append(Target(f"{what}: the same per processor second", cheap, least, True, ""))
        targets.append(Target(f"{what}: p99 over ZooKeeper's", p99, 1, False, ""))
    for figure in figures:
        limit = {_STARTING: _START, _IDLE: _IDLE_MEMORY}.get(figure.what, 1.0)
        what = f"{figure.what}, over ZooKeeper's"
        targets.append(Target(what, figure.ratio, limit, figure.more_is_better, ""))
    return targets


def _data(results: _Results, figures: Sequence[_Figure], warm_ups: _WarmUps) -> dict[str, object]:
    return {
        "loads": {
            f"{name}, {_shown(shape)}": {
                server: [asdict(run) for run in runs] for server, runs in both.runs.items()
            }
            for (name, shape), both in results.items()
        },
        "figures": {figure.what: dict(figure.values) for figure in figures},
        "warm_up": {server: dict(works) for server, works in warm_ups.items()},
    }
