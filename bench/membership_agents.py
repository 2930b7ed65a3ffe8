"""Idle agents: what it costs a machine to be a member of a cluster in which nothing happens.

Each agent is a process of its own, on loopback, with the default settings.  After everyone knows
everyone the news dies down; then processor time, packets and memory are taken twice, some time apart.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import psutil

from bench.results import Section, Table, Target, count, size
from bench.rounds import Settings, run
from quoracy.membership.runtime.queries import AgentQuery, AgentReport

__all__ = ["measure"]

_NOTE = (
    "Agents (`quoracy agent`) on one machine over loopback, one process each, default settings, no "
    "key, uvloop; nothing happens but probing and comparing. Processor time is user and system "
    "together, as a part of one core. Packets and bytes are what one agent sends, without the headers "
    "of IP and UDP."
)
_ALL_KNOW_S_MAX = 120.0


@dataclass(frozen=True, slots=True)
class _Measured:
    agents: int
    cpu_percent: Sequence[float]
    packets_per_s: float
    bytes_per_s: float
    unique_bytes: float

    @property
    def row(self) -> list[str]:
        return [
            count(self.agents),
            f"{statistics.mean(self.cpu_percent):.2f} %",
            f"{max(self.cpu_percent):.2f} %",
            f"{self.packets_per_s:.1f}",
            f"{size(self.bytes_per_s)}/s",
            size(self.unique_bytes),
        ]


def measure(settings: Settings) -> Section:
    counts, calm_s, watch_s = ((5,), 2.0, 3.0) if settings.quick else ((10, 50), 15.0, 30.0)
    measured = []
    for agents_count in counts:
        settings.report(f"membership: {agents_count} agents")
        measured.append(run(_measure(agents_count, calm_s=calm_s, watch_s=watch_s)))
    worst = max(max(each.cpu_percent) for each in measured)
    return Section(
        name="agents",
        title="Idle agents",
        note=_NOTE,
        tables=[
            Table(
                ["agents", "processor", "busiest", "packets/s", "sent", "memory of its own"],
                [each.row for each in measured],
            )
        ],
        targets=[
            Target(
                "processor time of an idle agent", worst, limit=1.0, at_least=False, unit="% of a core"
            )
        ],
        data={
            str(each.agents): {
                "cpu_percent": list(each.cpu_percent),
                "packets_per_s": each.packets_per_s,
                "bytes_per_s": each.bytes_per_s,
                "unique_bytes": each.unique_bytes,
            }
            for each in measured
        },
    )


async def _measure(agents_count: int, *, calm_s: float, watch_s: float) -> _Measured:
    async with _running(agents_count) as (processes, seed):
        await _until_all_know(seed, agents_count)
        await asyncio.sleep(calm_s)  # until nobody has news any more
        watched = [psutil.Process(process.pid) for process in processes]
        started, before = time.perf_counter(), [_cpu_s(each) for each in watched]
        first = await seed.ask()
        await asyncio.sleep(watch_s)
        last = await seed.ask()
        after, elapsed_s = [_cpu_s(each) for each in watched], time.perf_counter() - started
        return _Measured(
            agents_count,
            [100 * (late - early) / elapsed_s for early, late in zip(before, after, strict=True)],
            _per_s(first, last, "packets_out"),
            _per_s(first, last, "packet_bytes_out"),
            statistics.mean(each.memory_full_info().uss for each in watched),
        )


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _per_s(first: AgentReport, last: AgentReport, counter: str) -> float:
    return (last.traffic[counter] - first.traffic[counter]) / (last.uptime_s - first.uptime_s)


async def _until_all_know(seed: AgentQuery, agents_count: int) -> None:
    async with asyncio.timeout(_ALL_KNOW_S_MAX):
        while True:
            members = (await seed.ask()).members
            if sum(member.state == "alive" for member in members) == agents_count:
                return
            await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def _running(
    agents_count: int,
) -> AsyncIterator[tuple[list[subprocess.Popen[bytes]], AgentQuery]]:
    processes: list[subprocess.Popen[bytes]] = []
    try:
        first = _start("agent-0")
        processes.append(first)
        assert first.stdout is not None
        address = json.loads(await asyncio.to_thread(first.stdout.readline))["address"]
        for number in range(1, agents_count):
            processes.append(_start(f"agent-{number}", "--join", address))
        yield processes, AgentQuery(address)
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


def _start(name: str, *arguments: str) -> subprocess.Popen[bytes]:
    is_first = not arguments
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "quoracy", "agent", "--name", name, "--bind", "127.0.0.1:0"),
            *("-o", "json", *arguments),
        ],
        # The first one says where it is; nobody would read what the others have to say.
        stdout=subprocess.PIPE if is_first else subprocess.DEVNULL,
    )
