"""One schedule from beginning to end: a cell, its clients, the faults of a plan, and the verdicts.

    start the cell -> start the loads -> faults -> wait until every host serves again -> a second more
    -> everybody sees the end -> what each host holds -> etcd's own history -> all checkers

Everything here runs on the clients' host, in a thread that is there; `run_schedule` is called from
anywhere.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from quoracy.errors import Indeterminate, Unavailable
from quoracy.remote.store import open_remote
from quoracy.remote.urls import Target
from quoracy.store.digest import Digest
from quoracy.store.model import EventKind, KeyRange
from tests.cells.cell import CLIENTS, Cell, Host, Setup
from tests.cells.faults import Breaking
from tests.cells.judging import Evidence, judge
from tests.cells.loads import Loads
from tests.cells.network import Network
from tests.cells.schedule import PUTS_OFF_LAPSES, Plan
from tests.cells.truth import PREFIX, Truth
from tests.checkers.history import Verdict

__all__ = ["Report", "run_schedule"]

T = TypeVar("T")

_RESUMES_S_MAX = 30.0
_AGAIN_S = 0.1
# When a fault is over, members elect a leader; a new one gives every lease its whole time again, and
# the time of an election on top.  (Two elections, of a second or two; then the second on top.)
_ELECTS_S = 4.0
_ZNODES = b"quoracy/zk/n"


@dataclass(frozen=True, slots=True)
class Report:
    """What became of one schedule."""

    plan: Plan
    verdicts: dict[str, Verdict]
    resumed_s: float  # how long after the last fault until every host served again
    took_s: float
    notes: tuple[str, ...]

    @property
    def checked(self) -> int:
        """Operations: what clients asked for and were told.  (Watches are not asked for one by one.)"""
        return sum(
            verdict.checked
            for what, verdict in self.verdicts.items()
            if what in ("registers", "stale reads", "acknowledged", "sequences", "locks", "ephemerals")
        )

    @property
    def events(self) -> int:
        return self.verdicts["watches"].checked

    @property
    def problems(self) -> list[str]:
        return [f"{what}: {v.problem}" for what, v in self.verdicts.items() if not v.ok]


def run_schedule(plan: Plan, setup: Setup, directory: Path, *, rate: float = 50.0) -> Report:
    """Make the hosts, run it, take everything down.  Raises what is neither a verdict nor planned."""
    with Network(Cell.host_names(setup)) as network:
        return network.call(CLIENTS, lambda: asyncio.run(_run(plan, setup, network, directory, rate)))


async def _run(plan: Plan, setup: Setup, network: Network, directory: Path, rate: float) -> Report:
    began = time.monotonic()
    async with Cell.running(setup, network, directory) as cell:
        truth = Truth(cell)
        loads = Loads(cell, plan.seed, rate)
        # Clients come while the cell is starting, and wait for it: that saves them both time.
        async with loads.running(), _observing(cell) as gone:
            await cell.wait_serving()
            breaking = Breaking(cell, truth, loads.holder)
            await breaking.carry_out(plan)
            healed = time.monotonic()
            await cell.wait_serving(_RESUMES_S_MAX)
            resumed = time.monotonic()
            await asyncio.sleep(plan.after_s)
            revision = await _write_end(cell)
            await loads.end(revision)
            observed_until = time.monotonic()
        final = {name: await _final_sets(host) for name, host in cell.hosts.items()}
        digests = await _digests(cell, revision)
        await truth.read_on()
    last = max((until for _, _, until in breaking.windows), default=0.0)
    evidence = Evidence(
        directory=directory,
        truth=truth,
        pinned=loads.pinned,
        final=final,
        digests=digests,
        faults=tuple((since, until) for _, since, until in breaking.windows),
        outages=tuple(
            (since, (resumed if until == last else until) + _ELECTS_S)
            for each, since, until in breaking.windows
            if each.kind in PUTS_OFF_LAPSES
        ),
        woken=tuple(breaking.woken),
        gone=gone,
        observed_until=observed_until,
    )
    verdicts = await asyncio.to_thread(judge, evidence)
    took_s = time.monotonic() - began
    return Report(plan, verdicts, resumed - healed, took_s, tuple(breaking.notes))


# -- what the runner sees --------------------------------------------------------------------------


@asynccontextmanager
async def _observing(cell: Cell) -> AsyncIterator[dict[str, float]]:
    """When each ephemeral node was deleted, by a watch on etcd itself."""
    gone: dict[str, float] = {}
    prefix = PREFIX + _ZNODES
    async with cell.etcd() as store, store.watch(KeyRange.prefix(prefix + b"/eph/"), after=1) as watch:

        async def observe() -> None:
            async for batch in watch:
                for event in batch.events:
                    if event.kind is EventKind.DELETE:
                        gone[event.kv.key.removeprefix(prefix).decode()] = time.monotonic()

        observing = asyncio.create_task(observe())
        try:
            yield gone
        finally:
            observing.cancel()
            await asyncio.wait([observing])


async def _patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask again for a while what does no harm: etcd may elect a leader at any time, also at the end."""
    async with asyncio.timeout(_RESUMES_S_MAX):
        while True:
            try:
                return await ask()
            except (Unavailable, Indeterminate):
                await asyncio.sleep(_AGAIN_S)


async def _write_end(cell: Cell) -> int:
    """A change that every watcher of everything sees last."""
    host = next(iter(cell.hosts.values()))
    async with open_remote(Target((host.store_address,))) as store:
        return (await _patiently(lambda: store.put(b"end"))).revision


async def _final_sets(host: Host) -> dict[str, list[bytes]]:
    """The sets as this host tells them."""
    async with open_remote(Target((host.store_address,))) as store:
        plain = await _patiently(lambda: store.range(KeyRange.prefix(b"s/")))
        sets = KeyRange.prefix(_ZNODES + b"/set/")
        znodes = await _patiently(lambda: store.range(sets, keys_only=True))
    return {
        "s/": [kv.value for kv in plain.kvs],
        "/set": [kv.key.removeprefix(_ZNODES + b"/set/") for kv in znodes.kvs],
    }


async def _digests(cell: Cell, at: int) -> dict[str, str]:
    """What everybody held at the end, in one word: all nodes, and all members."""
    found = {}
    prefix = b"" if cell.setup.plain else PREFIX
    keys = KeyRange.prefix(prefix) if prefix else KeyRange.everything()
    for name, host in cell.hosts.items():
        found[f"{name}-etcd"] = await _patiently(partial(_member_digest, host, keys, prefix, at))
        if host.node is not None:
            found[f"{name}-node"] = await _patiently(partial(_node_digest, host, at))
    return found


async def _member_digest(host: Host, keys: KeyRange, prefix: bytes, at: int) -> str:
    async with open_remote(Target((host.member_address,))) as member:
        contents = await member.range(keys, at=at)
    digest = Digest()
    digest.update(msgspec.structs.replace(kv, key=kv.key.removeprefix(prefix)) for kv in contents.kvs)
    return digest.hexdigest()


async def _node_digest(host: Host, at: int) -> str:
    async with open_remote(Target((host.store_address,))) as node:
        return (await node.hash(at=at)).digest
