"""A simulated network of machines: members, time, and faults.

    world = World(seed=7, network=Network(loss=0.05))
    world.add("a", MyMachine(rng=world.rng("a")))
    world.schedule([Crash("a", at=10.0)])
    world.run(until=60.0)

The same seed and the same calls give the same run, in any process.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TypeAlias, cast

from quoracy.errors import InvalidRequest
from quoracy.membership.machine import Address, Effect, Leaver, Machine
from quoracy.membership.simulator.engine import Engine, Resume
from quoracy.membership.simulator.faults import (
    Crash,
    CrashKind,
    Drift,
    Fault,
    Heal,
    Join,
    Leave,
    Loss,
    OneWay,
    Partition,
    Restart,
    Slow,
    Stall,
    named,
)
from quoracy.membership.simulator.network import Cut, Link, Network
from quoracy.membership.simulator.node import Counters, Factory, Node, Then

__all__ = ["OnFault", "World"]

OnFault: TypeAlias = Callable[[float, Fault], None]

# How often a leaving member is asked whether it has left.
_LEAVING_EVERY_S = 0.1


class World(Engine):
    """Members on a network with all the failures of `faults`.

    on_effect(time, address, effect), on_event(time, address, event of a Tell), on_fault(time, fault)
    and on_life(time, address, begins) are called with true time when set; on_step is for `Trace`.

    >>> World(seed=1).rng("a").random() == World(seed=1).rng("a").random()
    True
    """

    def __init__(self, seed: int, *, network: Network | None = None, resume: Resume = "timers") -> None:
        super().__init__(seed, network or Network(), resume=resume)
        self.on_fault: OnFault | None = None

    def __repr__(self) -> str:
        # A failing test shows its values, and so the seed.
        return f"World(seed={self.seed}, now={self.now:.6f}, members={len(self._nodes)})"

    # -- members -----------------------------------------------------------------------------------

    def add(
        self,
        address: Address,
        machine: Machine,
        *,
        at: float = 0.0,
        drift: float = 0.0,
        offset: float = 0.0,
        service_s: float = 0.0,
        factory: Factory | None = None,
        then: Then | None = None,
    ) -> None:
        """Put a member on the network; it starts at `at`, or by a `Join` if that is infinite.

        drift, offset: its clock shows offset + (1 + drift) * true time.
        service_s: how long it is busy with each message.
        factory: makes its machine when it is restarted.
        then(machine, now): called right after each start, to join for instance; returns effects.
        """
        if address in self._nodes:
            raise InvalidRequest(
                f"{address} is in this world already: give each member its own address"
            )
        if drift <= -1:
            raise InvalidRequest(f"drift must be more than -1 (a clock that stands), not {drift}")
        node = self._nodes[address] = Node(address, machine, drift=drift, offset=offset)
        node.factory, node.then, node.service_s = factory, then, service_s
        if at < math.inf:
            self.at(at, lambda: self._begin(node))

    def machine(self, address: Address) -> Machine:
        """The machine of a member: that of its present life, or of its last."""
        return self._node(address).machine

    @property
    def addresses(self) -> tuple[Address, ...]:
        """All members, in the order they were added."""
        return tuple(self._nodes)

    def is_up(self, address: Address) -> bool:
        """Whether its process runs; one that is stopped is up, too."""
        return self._node(address).is_up

    def is_stopped(self, address: Address) -> bool:
        """Whether it is stopped or held up, and handles no messages."""
        node = self._node(address)
        return node.stops + node.holds > 0

    @property
    def up(self) -> Iterator[Address]:
        """Those that are up, in the order they were added."""
        return (address for address, node in self._nodes.items() if node.is_up)

    def counters(self, address: Address | None = None) -> Counters:
        """What one member sent and got so far, or all together."""
        if address is not None:
            return self._node(address).counters()
        return sum((node.counters() for node in self._nodes.values()), start=Counters())

    def call(
        self,
        address: Address,
        action: Callable[[Machine, float], list[Effect]],
        *,
        at: float | None = None,
    ) -> None:
        """Call `action` with a machine, as its owner would; the effects it returns are carried out.

        A member that is not up does nothing; one that is stopped does it when it runs again.
        """
        if at is not None and at > self.now:
            self.at(at, lambda: self.call(address, action))
            return
        node = self._node(address)
        if node.stops:
            node.wanted.append(action)
        elif node.is_up:
            self._carry_out(node, action(node.machine, node.local(self.now)), self.now)
            self._arm(node, self.now)

    def run_until(self, is_done: Callable[[], bool], *, until: float, every_s: float = 0.1) -> bool:
        """Run until `is_done()`, checked every `every_s`, or a time.  Returns whether it is done."""
        while not is_done():
            if self.now >= until:
                return False
            self.run(min(self.now + every_s, until))
        return True

    # -- faults ------------------------------------------------------------------------------------

    def schedule(self, faults: Iterable[Fault]) -> None:
        """Schedule faults, each at its time."""
        for fault in faults:
            for address in named(fault):
                self._node(address)
            self.at(fault.at, lambda fault=fault: self._apply(fault))  # type: ignore[misc]

    def crash(self, address: Address, at: float | None = None, *, kind: CrashKind = "process") -> None:
        """End a member without a word; see `Crash`."""
        self._now_or_then(Crash(address, self._when(at), kind))

    def restart(self, address: Address, at: float | None = None) -> None:
        """Start a member again, as what its factory makes."""
        self._now_or_then(Restart(address, self._when(at)))

    def leave(self, address: Address, at: float | None = None) -> None:
        """Let a member say goodbye; see `Leave`."""
        self._now_or_then(Leave(address, self._when(at)))

    def pause(self, address: Address, at: float | None = None, *, until: float) -> None:
        """Stop a member for a while; see `Stall`."""
        self._now_or_then(Stall(address, self._when(at), until))

    def partition(
        self, *groups: Collection[Address], at: float | None = None, until: float = math.inf
    ) -> None:
        """Partition the network; members in no group form one more."""
        parts = tuple(tuple(group) for group in groups)
        self._now_or_then(Partition(parts, self._when(at), until))

    def block(
        self,
        senders: Collection[Address],
        receivers: Collection[Address],
        *,
        at: float | None = None,
        until: float = math.inf,
    ) -> None:
        """Let nothing through one way."""
        self._now_or_then(OneWay(tuple(senders), tuple(receivers), self._when(at), until))

    def heal(self, at: float | None = None) -> None:
        """End every partition and block."""
        self._now_or_then(Heal(self._when(at)))

    def set_link(self, sender: Address, receiver: Address, link: Link | None) -> None:
        """Set the quality of the way from one member to another; None resets it."""
        self.links.override(sender, receiver, link)

    def _when(self, at: float | None) -> float:
        return self.now if at is None else at

    def _now_or_then(self, fault: Fault) -> None:
        if fault.at > self.now:
            self.schedule([fault])
        else:
            self._apply(fault)

    def _apply(self, fault: Fault) -> None:
        if self.on_fault is not None:
            self.on_fault(self.now, fault)
        match fault:
            case Crash(address, _, kind):
                self._end(self._node(address), with_host=kind == "machine")
            case Restart(address):
                self._again(self._node(address))
            case Join(address):
                self._begin(self._node(address))
            case Leave(address):
                self._leave(self._node(address))
            case Partition(groups, _, until):
                self._cut(Cut(groups=groups), until)
            case OneWay(senders, receivers, _, until):
                self._cut(Cut(senders=senders, receivers=receivers), until)
            case Heal():
                self.links.heal()
            case Stall():
                self._stall(fault)
            case Slow(address, service_s, _, until):
                self._set_service(self._node(address), service_s)
                self._until(until, lambda: self._set_service(self._node(address), 0.0))
            case Loss(loss, _, until, members):
                self.links.set_loss(loss, members)
                usual = 0.0 if members else self.links.network.loss
                self._until(until, lambda: self.links.set_loss(usual, members))
            case Drift(address, drift):
                node = self._node(address)
                node.set_rate(1.0 + drift, self.now)
                if node.is_up:
                    self._arm(node, self.now)

    def _until(self, until: float, action: Callable[[], object]) -> None:
        if until < math.inf:
            self.at(until, action)

    def _cut(self, cut: Cut, until: float) -> None:
        self.links.cut(cut)
        self._until(until, lambda: self.links.heal(cut))

    def _begin(self, node: Node) -> None:
        if not node.is_up and not node.generation:
            self._start(node, node.machine)

    def _again(self, node: Node) -> None:
        if node.factory is None:
            raise InvalidRequest(
                f"{node.address} cannot be restarted: add it with factory=, which makes a new machine"
            )
        if not node.is_up:
            self._start(node, node.factory(self.rng(f"{node.address}#{node.generation}")))

    def _leave(self, node: Node) -> None:
        machine = node.machine
        if not node.is_up:
            return
        if not isinstance(machine, Leaver):
            raise InvalidRequest(
                f"{node.address} cannot leave: its {type(machine).__name__} has no leave() and has_left"
            )
        self.call(node.address, lambda machine, now: cast(Leaver, machine).leave(now))
        self._end_when_left(node, node.generation, machine)

    def _end_when_left(self, node: Node, generation: int, machine: Leaver) -> None:
        if node.generation != generation or not node.is_up:
            return
        if machine.has_left:
            self._end(node, with_host=False)
        else:
            later = self.now + _LEAVING_EVERY_S
            self.at(later, lambda: self._end_when_left(node, generation, machine))

    def _stall(self, fault: Stall) -> None:
        node = self._node(fault.address)
        generation = node.generation

        def stop() -> None:
            # A member that crashed and was restarted meanwhile is another process.
            if self.now >= fault.until or node.generation != generation or not node.is_up:
                return
            (self._hold if fault.timers_run else self._pause)(node)
            ends = fault.until if fault.stopped_s is None else self.now + fault.stopped_s
            self.at(min(ends, fault.until), go_on)

        def go_on() -> None:
            if node.generation == generation:
                (self._release if fault.timers_run else self._unpause)(node)
                self.at(self.now + fault.running_s, stop)

        stop()

    def _set_service(self, node: Node, service_s: float) -> None:
        node.service_s = service_s
        node.look()

    def _node(self, address: Address) -> Node:
        node = self._nodes.get(address)
        if node is None:
            raise InvalidRequest(f"there is no member {address} in this world: add it first")
        return node
