"""Faults done to a running cell, and undone: processes killed and stopped, wires cut, clocks set.

Invariants
    * What a fault broke is whole again when it is over, whatever other fault began or ended meanwhile.
    * When each was is noted, from before it began to after it was undone.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field

from tests.cells.cell import CLIENTS, ETCD_PORT, PEER_PORT, Cell, Host, ToolFailed
from tests.cells.network import has_netem
from tests.cells.processes import Program
from tests.cells.schedule import Fault, Plan
from tests.cells.truth import Truth

__all__ = ["Breaking"]

_RESTART_S_MAX = 15.0
_CLOCK_STEPS = ("+3600", "-3600", "+86400", "-86400", "+7", "-7")


@dataclass
class Breaking:
    """Carries out the plan of one schedule.

    holder: a load whose clients hold locks, and which can be stopped.
    windows: when each fault was, in CLOCK_MONOTONIC.
    notes: what could not be done as planned, because another fault was in the way.
    woken: when members went on that had been stopped while they led.
    """

    cell: Cell
    truth: Truth
    holder: Program | None
    windows: list[tuple[Fault, float, float]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    woken: list[float] = field(default_factory=list)
    _rules: dict[int, Mapping[str, list[str]]] = field(default_factory=dict)
    _rules_lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def carry_out(self, plan: Plan) -> None:
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for fault in plan.faults:
                group.create_task(self._one(fault, began))

    async def _one(self, fault: Fault, began: float) -> None:
        await asyncio.sleep(began + fault.at_s - time.monotonic())
        since = time.monotonic()
        host = await self._resolve(fault.host)
        try:
            await self._kinds()[fault.kind](fault, host)
        except (ToolFailed, LookupError) as error:
            self.notes.append(f"{fault}: {error}")
        self.windows.append((fault, since, time.monotonic()))

    def _kinds(self) -> dict[str, Callable[[Fault, Host], Awaitable[None]]]:
        return {
            "kill-node": self._kill_node,
            "kill-member": self._kill_member,
            "kill-host": self._kill_host,
            "kill-majority": self._kill_majority,
            "stop-node": self._stop_node,
            "stop-member": self._stop_member,
            "stop-host": self._stop_host,
            "stop-holder": self._stop_holder,
            "cut-node": self._cut,
            "cut-member": self._cut,
            "cut-host": self._cut,
            "cut-clients": self._cut,
            "bridge": self._cut,
            "one-way-in": self._cut,
            "one-way-out": self._cut,
            "loss": self._cut,
            "slow": self._slow,
            "rolling-restart": self._rolling_restart,
            "compact": self._compact,
            "move-leader": self._move_leader,
            "clock-step": self._clock_step,
        }

    async def _resolve(self, name: str) -> Host:
        if name in self.cell.hosts:
            return self.cell.hosts[name]
        leader = await self.cell.leader() or next(iter(self.cell.hosts))
        if name == "leader":
            return self.cell.hosts[leader]
        return next(host for host in self.cell.hosts.values() if host.name != leader)

    # -- processes ------------------------------------------------------------------------------

    async def _kill_node(self, fault: Fault, host: Host) -> None:
        await self._kill(fault, [host.node])

    async def _kill_member(self, fault: Fault, host: Host) -> None:
        await self._kill(fault, [host.member])

    async def _kill_host(self, fault: Fault, host: Host) -> None:
        await self._kill(fault, [host.member, host.node])

    async def _kill_majority(self, fault: Fault, host: Host) -> None:
        others = [other for other in self.cell.hosts.values() if other is not host]
        count = len(self.cell.hosts) // 2 + 1
        await self._kill(fault, [each.member for each in [host, *others][:count]])

    async def _kill(self, fault: Fault, programs: list[Program | None]) -> None:
        chosen = [program for program in programs if program is not None]
        for program in chosen:
            program.check_running_unless_killed()
            program.kill()
        await asyncio.sleep(fault.for_s)
        for program in chosen:
            if program.was_killed:
                program.start()

    async def _stop_node(self, fault: Fault, host: Host) -> None:
        await self._stop(fault, [host.node])

    async def _stop_member(self, fault: Fault, host: Host) -> None:
        await self._stop_with_member(fault, host, [host.member])

    async def _stop_host(self, fault: Fault, host: Host) -> None:
        await self._stop_with_member(fault, host, [host.member, host.node])

    async def _stop_with_member(self, fault: Fault, host: Host, programs: list[Program | None]) -> None:
        if await self.cell.leader() == host.name:
            self.woken.append(time.monotonic() + fault.for_s)  # no sooner
        await self._stop(fault, programs)

    async def _stop_holder(self, fault: Fault, host: Host) -> None:
        await self._stop(fault, [self.holder])

    async def _stop(self, fault: Fault, programs: list[Program | None]) -> None:
        chosen = [program for program in programs if program is not None]
        for program in chosen:
            if program.is_running:
                program.send(signal.SIGSTOP)
        await asyncio.sleep(fault.for_s)
        for program in chosen:
            if program.is_running:
                program.send(signal.SIGCONT)

    async def _rolling_restart(self, fault: Fault, host: Host) -> None:
        """One program after the other, each only when its host serves again."""
        for each in self.cell.hosts.values():
            for program in (each.node, each.member):
                if program is not None and program.is_running:
                    await program.end()
                    if program.was_killed:  # and nobody else has started it again
                        program.start()
                    await self.cell.wait_host(each, _RESTART_S_MAX)

    # -- wires ----------------------------------------------------------------------------------

    async def _cut(self, fault: Fault, host: Host) -> None:
        await self._set_rules(fault, dict(self._rules_of(fault, host)))
        await asyncio.sleep(fault.for_s)
        await self._set_rules(fault, {})

    async def _set_rules(self, fault: Fault, rules: Mapping[str, list[str]]) -> None:
        async with self._rules_lock:
            self._rules[id(fault)] = rules
            together: dict[str, list[str]] = {}
            for each in self._rules.values():
                for name, lines in each.items():
                    together.setdefault(name, []).extend(lines)
            await asyncio.to_thread(self.cell.network.set_rules, together)

    def _rules_of(self, fault: Fault, host: Host) -> Iterator[tuple[str, list[str]]]:
        """What each host drops."""
        addresses = self.cell.network.addresses
        others = [other.address for other in self.cell.hosts.values() if other is not host]
        match fault.kind:
            case "cut-node":
                # The node alone: its own member goes on with its peers, and clients reach the node.
                yield host.name, [f"output tcp dport {ETCD_PORT}", f"input tcp sport {ETCD_PORT}"]
            case "cut-member":
                ways = ("input tcp sport", "input tcp dport", "output tcp sport", "output tcp dport")
                yield host.name, [f"{way} {PEER_PORT}" for way in ways]
            case "cut-host":
                yield (
                    host.name,
                    [
                        line
                        for other in others
                        for line in (f"input ip saddr {other}", f"output ip daddr {other}")
                    ],
                )
            case "cut-clients":
                client = addresses[CLIENTS]
                yield host.name, [f"input ip saddr {client}", f"output ip daddr {client}"]
            case "bridge":
                half, rest = others[: len(others) // 2], others[len(others) // 2 :]
                for other in self.cell.hosts.values():
                    if other is not host:
                        away = rest if other.address in half else half
                        yield other.name, [f"input ip saddr {address}" for address in away]
            case "one-way-in":
                yield host.name, [f"input ip saddr {other}" for other in others]
            case "one-way-out":
                yield host.name, [f"output ip daddr {other}" for other in others]
            case "loss":
                percent = 2 + int(fault.amount * 28)
                yield host.name, [f'input iifname "wire" numgen random mod 100 < {percent}']
            case _:
                raise AssertionError(f"{fault.kind} cuts no wire")

    async def _slow(self, fault: Fault, host: Host) -> None:
        """Delays; where the kernel has none to offer, a thin wire that much has to go through."""
        if has_netem():
            shape = f"netem delay {25 + int(fault.amount * 100)}ms 25ms"
        else:
            shape = f"tbf rate {300 + int(fault.amount * 1200)}kbit burst 8k latency 300ms"
        await asyncio.to_thread(self.cell.network.set_shape, host.name, *shape.split())
        await asyncio.sleep(fault.for_s)
        await asyncio.to_thread(self.cell.network.set_shape, host.name)

    # -- upkeep ---------------------------------------------------------------------------------

    async def _compact(self, fault: Fault, host: Host) -> None:
        """History goes, up to now; then every member makes its file small, one after the other."""
        await self.truth.compact()
        for name in self.cell.hosts:
            await self.cell.etcdctl("defrag", hosts=[name])

    async def _move_leader(self, fault: Fault, host: Host) -> None:
        leader = await self.cell.leader()
        if leader is None:
            raise LookupError("nobody leads")
        follower = next(name for name in self.cell.hosts if name != leader)
        member_id = await asyncio.to_thread(self.cell.member_id, follower)
        await self.cell.etcdctl("move-leader", member_id, hosts=[leader])

    async def _clock_step(self, fault: Fault, host: Host) -> None:
        step = _CLOCK_STEPS[int(fault.amount * len(_CLOCK_STEPS))]
        self.cell.clock_file(host.name).write_text(f"{step}\n")
        await asyncio.sleep(fault.for_s)
        self.cell.clock_file(host.name).write_text("+0\n")
