"""`python -m tests.cells.outage --kills 20`: how long nobody can write when the leader is killed.

Writes are sent at a steady rate, whether earlier ones were answered or not, to a node that survives
and, in the same moments, to the etcd member next to it.  The time without service is the longest time
between two acknowledgements.  Killed is the member that leads; or its whole machine, member and node;
or the machine and its network in one moment, so that nobody is told that connections are over.
Members flush to the disk here, and everything has etcd's own defaults.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from quoracy.errors import Indeterminate, Unavailable
from quoracy.remote.store import RemoteStore, open_remote
from quoracy.remote.urls import Address, Target
from tests.cells.cell import CLIENTS, Cell, Host, Setup
from tests.cells.network import Network, why_no_network

__all__ = ["Outage", "measure"]

_EVERY_S = 0.02
_TIMEOUT_S = 1.0
_BEFORE_S = 1.0
_AFTER_S = 1.0
_RECOVERS_S_MAX = 30.0
_WAYS = ("member", "machine", "silent machine")
_ACKED_MIN = 25  # so many in a row, and service is back


@dataclass(frozen=True, slots=True)
class Outage:
    """One kill: how long there was no service, by whom was asked."""

    killed: str
    node_s: float
    etcd_s: float


class _Writer:
    """Writes at a steady rate to one server, and when each was acknowledged."""

    def __init__(self, store: RemoteStore, key: bytes) -> None:
        self._store, self._key = store, key
        self.acked: list[float] = []

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            due = time.monotonic()
            while True:
                group.create_task(self._write())
                due += _EVERY_S
                await asyncio.sleep(max(due - time.monotonic(), 0))

    async def _write(self) -> None:
        try:
            await self._store.put(self._key, b"x")
        except (Unavailable, Indeterminate):
            return
        self.acked.append(time.monotonic())

    def is_back_since(self, moment: float) -> bool:
        return sum(acked > moment + _TIMEOUT_S for acked in self.acked[-_ACKED_MIN:]) == _ACKED_MIN

    def longest_gap(self, since: float) -> float:
        times = sorted(acked for acked in self.acked if acked >= since)
        return max(later - earlier for earlier, later in itertools.pairwise(times))


def measure(kills: int, directory: Path, *, etcd: str = "3.4", seed: int = 1) -> list[Outage]:
    """Kill the leader again and again, each of the ways in turn."""
    setup = Setup(etcd=etcd, durable=True)
    with Network(Cell.host_names(setup)) as network:
        return network.call(
            CLIENTS, lambda: asyncio.run(_measure(setup, network, directory, kills, seed))
        )


async def _measure(
    setup: Setup, network: Network, directory: Path, kills: int, seed: int
) -> list[Outage]:
    rng = random.Random(f"outages {seed}")
    outages = []
    async with Cell.running(setup, network, directory) as cell:
        await cell.wait_serving()
        for number in range(kills):
            outages.append(await _kill_once(cell, _WAYS[number % len(_WAYS)], rng))
            await cell.wait_serving()
    return outages


async def _kill_once(cell: Cell, killed: str, rng: random.Random) -> Outage:
    leader = cell.hosts[await _known_leader(cell)]
    survivor = rng.choice([host for host in cell.hosts.values() if host is not leader])
    async with _writing(survivor.store_address) as node, _writing(survivor.member_address) as member:
        await asyncio.sleep(_BEFORE_S)
        moment = time.monotonic()
        _kill(cell, leader, killed)
        async with asyncio.timeout(_RECOVERS_S_MAX):
            while not (node.is_back_since(moment) and member.is_back_since(moment)):  # noqa: ASYNC110
                await asyncio.sleep(_EVERY_S)
        await asyncio.sleep(_AFTER_S)
    cell.network.set_rules({})
    for program in (leader.member, leader.node):
        if program is not None and program.was_killed:
            program.start()
    since = moment - _BEFORE_S / 2
    return Outage(killed, node.longest_gap(since), member.longest_gap(since))


def _kill(cell: Cell, host: Host, what: str) -> None:
    if what == "silent machine":
        cell.network.set_rules({host.name: ["output ip daddr 10.0.0.0/8", "input ip saddr 10.0.0.0/8"]})
    host.member.kill()
    if what != "member" and host.node is not None:
        host.node.kill()


async def _known_leader(cell: Cell) -> str:
    while (leader := await cell.leader()) is None:  # noqa: ASYNC110
        await asyncio.sleep(_EVERY_S)
    return leader


@asynccontextmanager
async def _writing(address: Address) -> AsyncIterator[_Writer]:
    async with open_remote(Target((address,)), timeout_s=_TIMEOUT_S) as store:
        writer = _Writer(store, f"outage/{address}".encode())
        task = asyncio.create_task(writer.run())
        try:
            yield writer
        finally:
            task.cancel()
            await asyncio.wait([task])


def table(outages: list[Outage]) -> str:
    """For people, and for docs/reliability.md."""
    lines = ["| killed | asked | kills | median s | worst s |", "|---|---|---|---|---|"]
    for killed in _WAYS:
        chosen = [outage for outage in outages if outage.killed == killed]
        for asked, times in (
            ("a Quoracy node", [outage.node_s for outage in chosen]),
            ("plain etcd", [outage.etcd_s for outage in chosen]),
        ):
            if times:
                lines.append(
                    f"| leader's {killed} | {asked} | {len(times)} | {statistics.median(times):.2f} "
                    f"| {max(times):.2f} |"
                )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cells.outage", description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--etcd", choices=("3.4", "3.5"), default="3.4")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    why_not = why_no_network()
    if why_not is not None:
        sys.stdout.write(why_not + "\n")
        return 2
    with tempfile.TemporaryDirectory(prefix="outage-") as directory:
        outages = measure(options.kills, Path(directory), etcd=options.etcd, seed=options.seed)
    sys.stdout.write(table(outages) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
