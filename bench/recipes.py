"""Locks of several libraries on their servers: cycles by one client, and hand-offs between fifty.

Every server is on the same disk and answers a write when it is synced.  Clients are in processes of
their own, for every library as many clients in as many processes, and libraries take turns.
"""

from __future__ import annotations

import itertools
import json
import random
import select
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from bench.recipes_clients import LIBRARIES
from bench.results import Section, Table, Target, count, duration, ratio
from bench.rounds import Contestant, Rounds, Settings, alternate, run
from bench.servers import serve_etcd, serve_quoracy, serve_redis, serve_zookeeper

__all__ = ["Child", "HandOffs", "Shape", "children", "hand_offs_of", "measure", "one_queue", "section"]

_OURS = "Quoracy, asyncio"
_KAZOO = "kazoo on ZooKeeper"
_AETCD = "aetcd on etcd"
_REDIS = ("redis-py on Redis, threads", "redis-py on Redis, asyncio")

_ANSWER_S_MAX = 120.0
_STOP_S_MAX = 10.0

_NOTE = """\
Each library's own lock, entered and left by a `with` block, on servers that sync every write to the
same disk before they answer (Redis: appendonly, appendfsync always). In a cycle, one client
acquires a free lock and releases it. For hand-offs {waiters} clients wait, each with a connection and
a session of its own, spread over {processes} processes (one for a store in process). Each holder
holds the lock for 5 ms, so that all effects of one release are over before the next one. A hand-off
is the time from the start of a release until the next client is inside its block. It grows with the
time for which a lock is held, with any library: processors and disk go to sleep in the meantime, and
on some file systems, including this one, a file that was not written to for some milliseconds needs
another write to sync. So another table shows hand-offs by that time. redis-py has no queue: its
waiters ask ten times a second, and it is random which of them finds the lock free; the same holds for
tooz on Redis and, with pauses of up to a second, on etcd. aetcd's waiters all wake and try at each
release, and each try grants a lease. Rates and ratios are those of rounds in which all libraries take
turns; the faster of redis-py's two clients is compared. {absent}"""


@dataclass(frozen=True, slots=True)
class Shape:
    """How many processes with how many waiting clients each, how long those get to be in line, and how
    long each holds the lock."""

    processes: int
    clients: int
    settle_s: float
    hold_s: float = 0.005

    @property
    def waiters(self) -> int:
        return self.processes * self.clients


# When a client had the lock, and when it began to give it back.
Turn = tuple[float, float]
# By library, then by round.
HandOffs = Mapping[str, Sequence[Sequence[float]]]
# By how long the lock was held.
ByHold = Mapping[float, HandOffs]

_HOLDS_S = (0.0, 0.001, 0.005, 0.02)


def measure(settings: Settings) -> Section:
    names = [name for name, each in LIBRARIES.items() if each.is_installed]
    shape = Shape(2, 3, 0.3) if settings.quick else Shape(5, 10, 1.0)
    with ExitStack() as stack:
        where = {
            name: f"127.0.0.1:{stack.enter_context(serve(settings.directory / name)).port}"
            for name, serve in (
                ("Quoracy", serve_quoracy),
                ("etcd", serve_etcd),
                ("ZooKeeper", serve_zookeeper),
                ("Redis", serve_redis),
            )
        }
        addresses = {}
        for name in names:
            server = LIBRARIES[name].server
            addresses[name] = f"sqlite:{settings.directory / name}" if server is None else where[server]
        cycles = _cycles(settings, addresses)
        hand_offs = _hand_offs(settings, addresses, shape)
        by_hold = _by_hold(settings, addresses, shape)
    return section(cycles, hand_offs, by_hold, shape)


def _cycles(settings: Settings, addresses: Mapping[str, str]) -> Rounds:
    slice_s, warm_up_s = (0.2, 0.2) if settings.quick else (0.5, 3.0)
    with ExitStack() as stack:
        clients: dict[str, Child] = {}
        for name, address in addresses.items():
            settings.report(f"locks: {name} warms up")
            (clients[name],) = stack.enter_context(children(name, address, 1))
            clients[name].cycles(warm_up_s)

        def turn(client: Child) -> Contestant:
            async def take(seconds: float) -> float:
                return client.cycles(seconds)

            return take

        contestants = {name: turn(client) for name, client in clients.items()}
        return run(alternate(settings, "locks: cycles", contestants, slice_s=slice_s))


def _hand_offs(settings: Settings, addresses: Mapping[str, str], shape: Shape) -> HandOffs:
    rounds = 1 if settings.quick else 3
    times: dict[str, list[list[float]]] = {name: [] for name in addresses}
    for number in range(rounds):
        for name in random.Random(number).sample(list(addresses), len(addresses)):
            settings.report(f"locks: hand-offs of {name}, round {number + 1} of {rounds}")
            alone = LIBRARIES[name].server is None
            with children(name, addresses[name], 1 if alone else shape.processes) as processes:
                # A process is slower the first time it does anything.
                one_queue(processes, replace(shape, clients=2))
                times[name].append(one_queue(processes, shape))
    return times


def _by_hold(settings: Settings, addresses: Mapping[str, str], shape: Shape) -> ByHold:
    """Of Quoracy's lock and kazoo's, which take turns; a few rounds in the same processes."""
    rounds = 1 if settings.quick else 5
    names = (_OURS, _KAZOO)
    times: dict[float, dict[str, list[list[float]]]] = {
        hold_s: {name: [] for name in names} for hold_s in _HOLDS_S
    }
    with ExitStack() as stack:
        crews = {
            name: stack.enter_context(children(name, addresses[name], shape.processes))
            for name in names
        }
        for crew in crews.values():
            one_queue(crew, shape)
        for number in range(rounds):
            for hold_s in _HOLDS_S:
                settings.report(
                    f"locks: hand-offs, held for {hold_s * 1000:g} ms, round {number + 1} of {rounds}"
                )
                for name in random.Random(number).sample(names, len(names)):
                    times[hold_s][name].append(one_queue(crews[name], replace(shape, hold_s=hold_s)))
    return times


# -- the processes of clients


class Child:
    """A process of clients."""

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.recipes_child", name, address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._commands, self._answers = self._process.stdin, self._process.stdout

    def cycles(self, seconds: float) -> float:
        return float(self._ask(f"cycles {seconds}"))

    def take(self) -> None:
        self._ask("take")

    def wait(self, hold_s: float) -> None:
        self._ask(f"wait {hold_s}")

    def give(self) -> Turn:
        held_at, released_at = self._ask("give")
        return held_at, released_at

    def turns(self) -> list[Turn]:
        return [(held_at, released_at) for held_at, released_at in self._ask("turns")]

    def _ask(self, command: str) -> Any:
        self._commands.write(command.encode() + b"\n")
        self._commands.flush()
        readable, _, _ = select.select([self._answers], [], [], _ANSWER_S_MAX)
        line = self._answers.readline() if readable else b""
        if not line:
            how = "failed; its error is above" if readable else f"took over {_ANSWER_S_MAX:g} s"
            raise RuntimeError(f"{self.name}: {command!r} {how}")
        return json.loads(line)

    def dismiss(self) -> None:
        """It has nothing more to do."""
        self._commands.close()

    def wait_ended(self) -> None:
        try:
            self._process.wait(_STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._answers.close()


@contextmanager
def children(name: str, address: str, number: int) -> Iterator[list[Child]]:
    """So many processes with clients of one library; they end with the context."""
    with ExitStack() as ends, ExitStack() as dismissals:
        started = []
        for _ in range(number):
            child = Child(name, address)
            ends.callback(child.wait_ended)
            dismissals.callback(child.dismiss)
            started.append(child)
        yield started


# -- hand-offs


def one_queue(processes: Sequence[Child], shape: Shape) -> list[float]:
    """Let everyone wait for one lock, neighbours in different processes, and pass it down the queue."""
    processes[0].take()
    for number in range(shape.waiters):
        processes[number % len(processes)].wait(shape.hold_s)
    # No library tells when somebody is in line.
    time.sleep(shape.settle_s)
    turns = [processes[0].give()]
    for process in processes:
        turns += process.turns()
    return hand_offs_of(turns)


def hand_offs_of(turns: Sequence[Turn]) -> list[float]:
    """The time from each release to the next one's turn; refuses turns that overlap."""
    in_order = sorted(turns)
    times = [
        next_held_at - released_at
        for (_, released_at), (next_held_at, _) in itertools.pairwise(in_order)
    ]
    if min(times) < 0:
        raise RuntimeError("two clients held the lock at once: these times mean nothing")
    return times


# -- what is shown


def section(cycles: Rounds, hand_offs: HandOffs, by_hold: ByHold, shape: Shape) -> Section:
    """The results, next to the goals."""
    absent = [name for name in LIBRARIES if name not in hand_offs]
    return Section(
        name="locks",
        title="Locks of several libraries",
        note=_NOTE.format(
            waiters=shape.waiters,
            processes=shape.processes,
            absent=f"Not installed here: {', '.join(absent)}." if absent else "",
        ).strip(),
        tables=[
            _cycles_table(cycles, hand_offs),
            _hand_offs_table(hand_offs, shape),
            _by_hold_table(by_hold, shape),
        ],
        targets=_targets(cycles, hand_offs, by_hold),
        data={
            "cycles": {name: cycles.rates(name) for name in hand_offs},
            "hand_offs_s": _as_lists(hand_offs),
            "hand_offs_by_hold_s": {f"{hold_s:g}": _as_lists(each) for hold_s, each in by_hold.items()},
        },
    )


def _as_lists(hand_offs: HandOffs) -> dict[str, list[list[float]]]:
    return {name: [list(times) for times in each] for name, each in hand_offs.items()}


def _cycles_table(cycles: Rounds, names: Iterable[str]) -> Table:
    rows = []
    for name in names:
        rate = cycles.rate(name)
        rows.append([name, count(rate), duration(1 / rate), ratio(cycles.ratio(_OURS, to=name))])
    return Table(
        ["lock taken and given back by one client", "/s", "a cycle", "Quoracy's /s over its"], rows
    )


def _hand_offs_table(hand_offs: HandOffs, shape: Shape) -> Table:
    rows = []
    for name, rounds in hand_offs.items():
        times = [seconds for each in rounds for seconds in each]
        p99_s = statistics.quantiles(times, n=100, method="inclusive")[98]
        figures = statistics.median(times), p99_s, max(times)
        share = _hand_off_ratio(hand_offs, _OURS, to=name)
        rows.append([name, *map(duration, figures), ratio(share)])
    columns = ["median", "p99", "longest", "Quoracy's median over its"]
    return Table([f"hand-off, {shape.waiters} waiting", *columns], rows)


def _by_hold_table(by_hold: ByHold, shape: Shape) -> Table:
    rows = []
    for hold_s, hand_offs in by_hold.items():
        medians = [
            duration(statistics.median(seconds for each in hand_offs[name] for seconds in each))
            for name in (_OURS, _KAZOO)
        ]
        held = f"held for {hold_s * 1000:g} ms" if hold_s else "passed on at once"
        rows.append([held, *medians, ratio(_hand_off_ratio(hand_offs, _OURS, to=_KAZOO))])
    return Table([f"hand-off, {shape.waiters} waiting, median", _OURS, _KAZOO, "ratio"], rows)


def _hand_off_ratio(hand_offs: HandOffs, name: str, *, to: str) -> float:
    pairs = zip(hand_offs[name], hand_offs[to], strict=True)
    return statistics.median(statistics.median(ours) / statistics.median(its) for ours, its in pairs)


def _targets(cycles: Rounds, hand_offs: HandOffs, by_hold: ByHold) -> list[Target]:
    redis = max(_REDIS, key=cycles.rate)
    targets = []
    for name, limit in ((_KAZOO, 3.0), (_AETCD, 2.0), (redis, 1.0)):
        what = f"lock cycles by one client, over those of {name}"
        targets.append(Target(what, cycles.ratio(_OURS, to=name), limit, True, ""))
    what = f"hand-off of a lock, median, over that of {_KAZOO}"
    for when, each in (("passed on at once", by_hold[0.0]), ("held for 5 ms", hand_offs)):
        share = _hand_off_ratio(each, _OURS, to=_KAZOO)
        targets.append(Target(f"{what}, {when}", share, 0.33, False, ""))
    return targets
