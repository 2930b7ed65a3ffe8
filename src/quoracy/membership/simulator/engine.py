"""The event loop of the simulator: one heap of events, which are passed to machines.

Time jumps from event to event.  The effects that a machine returns become new events, after delays that
the network draws from one seeded generator.  The same seed and the same calls give the same run, event
for event, in any process.

Invariants
    * Events happen in the order of their time, and those of one time in the order they were made.
    * Each machine draws from its own generator, made of the seed and a name, so adding a member does
      not change the draws of others; the network has another.
    * A timer that a machine moves is not searched for in the heap: when it pops it is pushed again if
      the machine is not due.
    * A machine that raises anything but `ProtocolError` ends the run; the error says the seed and when.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from typing import Literal, TypeAlias

from quoracy.errors import InvalidRequest, ProtocolError
from quoracy.membership.machine import Address, Effect, Machine, SendPacket, SendStream, Tell
from quoracy.membership.simulator.network import Links, Network
from quoracy.membership.simulator.node import Node

__all__ = ["Engine", "OnEffect", "OnEvent", "OnLife", "OnStep", "Resume"]

Resume: TypeAlias = Literal["timers", "packets"]
OnEffect: TypeAlias = Callable[[float, Address, Effect], None]
OnEvent: TypeAlias = Callable[[float, Address, object], None]
# (true time, whose, whether its process begins or ends)
OnLife: TypeAlias = Callable[[float, Address, bool], None]
# (true time, what, whose, the other's address, data): see `Trace`.
OnStep: TypeAlias = Callable[[float, str, Address, Address, bytes], None]

_PACKET, _TIMER, _STREAM, _FAILED, _TRY, _CALL, _DRAIN = range(7)
_NAMES = {_PACKET: "packet", _STREAM: "stream", _FAILED: "unreachable"}
# A machine that is due again and again at one time is broken: raise, instead of looping for ever.
_TICKS_AT_ONCE_MAX = 10_000


class _Stream:
    """A reliable message under way."""

    __slots__ = ("again_s", "data", "deadline", "generation", "sender", "target_generation", "to")

    def __init__(self, sender: Node, to: Address, data: bytes, deadline: float, again_s: float) -> None:
        self.sender, self.generation = sender, sender.generation
        self.to, self.data = to, data
        self.deadline, self.again_s = deadline, again_s
        self.target_generation = 0


# When, a number that orders those of one time, what kind, whose, and two things that the kind needs.
_Action: TypeAlias = Callable[[], object]
_Payload: TypeAlias = bytes | _Stream | _Action | None
_Entry: TypeAlias = tuple[float, int, int, Node | None, _Payload, Address]


class Engine:
    """Events and what they do.  Use `World`, which adds members, faults and queries.

    resume: what a member that was stopped does first when it runs again: all its timers that are due
    ("timers", the harder case and the default) or everything that arrived meanwhile ("packets").
    """

    def __init__(self, seed: int, network: Network, *, resume: Resume) -> None:
        if resume not in ("timers", "packets"):
            raise InvalidRequest(f'resume is "timers" or "packets", not {resume!r}')
        self.seed = seed
        self.now = 0.0
        self.events_count = 0
        self.on_effect: OnEffect | None = None
        self.on_event: OnEvent | None = None
        self.on_life: OnLife | None = None
        self.on_step: OnStep | None = None
        self._resume = resume
        self._rng = random.Random(f"{seed}/network")
        self.links = Links(network, self._rng)
        self._nodes: dict[Address, Node] = {}
        self._heap: list[_Entry] = []
        self._number = itertools.count().__next__

    def rng(self, name: str) -> random.Random:
        """A generator for one machine: it depends on the seed and the name, and on nothing else."""
        # Text is hashed with SHA-512 here, not with hash(), so it is the same in every process.
        return random.Random(f"{self.seed}/{name}")

    def at(self, time: float, action: Callable[[], object]) -> None:
        """Call `action` at a true time; at once if that has passed."""
        self._push(max(time, self.now), _CALL, None, action, "")

    def run(self, until: float) -> None:
        """Process all events up to this true time."""
        heap, pop = self._heap, heapq.heappop
        count = 0
        try:
            while heap and heap[0][0] <= until:
                now, _, kind, node, payload, other = pop(heap)
                self.now = now
                count += 1
                if kind == _PACKET and node.is_plain:  # type: ignore[union-attr]
                    self._give_packet(node, payload, other, now)  # type: ignore[arg-type]
                elif kind == _TIMER:
                    self._timer(node, now)  # type: ignore[arg-type]
                else:
                    self._other(kind, node, payload, other, now)
        except Exception as error:
            error.add_note(f"simulation with seed {self.seed}, at {self.now:.6f} s of true time")
            raise
        finally:
            self.events_count += count
        self.now = max(self.now, until)

    # -- what happens ------------------------------------------------------------------------------

    def _give_packet(self, node: Node, data: bytes, sender: Address, now: float) -> None:
        """The common case, kept short: a datagram for a member without faults."""
        node.packets_received += 1
        node.bytes_received += len(data)
        if self.on_step is not None:
            self.on_step(now, "packet", node.address, sender, data)
        machine = node.machine
        try:
            effects = machine.receive(data, sender, now)
        except ProtocolError:
            node.rejected += 1
            return
        if effects:
            self._carry_out(node, effects, now)
        due = machine.next_due
        if due < node.timers[-1]:
            self._push_timer(node, due if due > now else now)

    def _timer(self, node: Node, now: float) -> None:
        node.timers.pop()
        if not node.is_up or node.stops:
            return
        if node.busy_until > now:
            # If an earlier timer is in the heap as well, that one will do this.
            if node.busy_until < node.timers[-1]:
                self._push_timer(node, node.busy_until)
            return
        machine = node.machine
        due = machine.next_due
        local = now if node.is_plain else node.local(now)
        if due > local:
            if node.is_plain or node.true(due) > now:
                self._arm(node, now)
                return
            # Rounding: the timer is due, though the clock shows slightly less.
            local = node.last_local = due
        self._tick(node, local, now)
        self._arm(node, now)

    def _tick(self, node: Node, local: float, now: float) -> None:
        node.ticks += 1
        if node.tick_at == now:
            node.tick_again += 1
            if node.tick_again > _TICKS_AT_ONCE_MAX:
                raise RuntimeError(
                    f"{node.address} was due {_TICKS_AT_ONCE_MAX:,} times at {now} s: "
                    "its tick() does not move next_due on"
                )
        else:
            node.tick_at, node.tick_again = now, 0
        if self.on_step is not None:
            self.on_step(now, "tick", node.address, "", b"")
        self._carry_out(node, node.machine.tick(local), now)

    def _other(
        self, kind: int, node: Node | None, payload: _Payload, other: Address, now: float
    ) -> None:
        if kind == _CALL:
            assert callable(payload)
            payload()
            return
        assert node is not None
        if kind == _TRY:
            assert isinstance(payload, _Stream)
            self._try_stream(payload, now)
        elif kind == _DRAIN:
            node.is_draining = False
            self._drain(node, now)
        elif kind == _PACKET:
            assert isinstance(payload, bytes)
            self._arrive(node, _PACKET, payload, other, now)
        elif kind == _STREAM:
            assert isinstance(payload, _Stream)
            self._end_stream(node, payload, now)
        else:
            assert isinstance(payload, _Stream)
            if payload.generation == node.generation:
                self._arrive(node, _FAILED, b"", other, now)

    def _arrive(self, node: Node, kind: int, data: bytes, other: Address, now: float) -> None:
        """Something for a member that may be down, stopped, busy, or have a clock of its own."""
        if not node.is_up:
            return
        is_free = not (node.stops or node.holds)
        if is_free and node.busy_until <= now and not node.backlog:
            self._handle(node, kind, data, other, now)
            return
        network = self.links.network
        if kind == _PACKET:
            if not node.keep_packet(kind, data, other, network.receive_buffer_bytes):
                return
        else:
            node.backlog_streams += kind == _STREAM
            node.backlog.append((kind, data, other))
        if is_free:
            self._drain_later(node)

    def _drain_later(self, node: Node) -> None:
        if not node.is_draining:
            node.is_draining = True
            self._push(node.busy_until, _DRAIN, node, None, "")

    def _drain(self, node: Node, now: float) -> None:
        """Handle the backlog: all of it, or one item at a time if each takes time."""
        while node.backlog and node.is_up and not (node.stops or node.holds):
            if node.busy_until > now:
                self._drain_later(node)
                return
            self._handle(node, *node.take(_PACKET, _STREAM), now)

    def _handle(self, node: Node, kind: int, data: bytes, other: Address, now: float) -> None:
        machine, local = node.machine, node.local(now)
        if self.on_step is not None:
            self.on_step(now, _NAMES[kind], node.address, other, data)
        if node.service_s:
            node.busy_until = now + node.service_s
        try:
            if kind == _PACKET:
                node.packets_received += 1
                node.bytes_received += len(data)
                effects = machine.receive(data, other, local)
            elif kind == _STREAM:
                node.streams_received += 1
                node.stream_bytes_received += len(data)
                effects = machine.receive_stream(data, other, local)
            else:
                effects = machine.unreachable(other, local)
        except ProtocolError:
            node.rejected += 1
            return
        self._carry_out(node, effects, now)
        self._arm(node, now)

    # -- what machines want ------------------------------------------------------------------------

    def _carry_out(self, node: Node, effects: list[Effect], now: float) -> None:
        links, on_effect = self.links, self.on_effect
        if node.holds:
            effects = self._held_back(node, effects, now)
        for effect in effects:
            if on_effect is not None:
                on_effect(now, node.address, effect)
            kind = type(effect)
            if kind is SendPacket:
                data: bytes = effect.data  # type: ignore[union-attr]
                to: Address = effect.to  # type: ignore[union-attr]
                node.packets_sent += 1
                node.bytes_sent += len(data)
                target = self._nodes.get(to)
                if target is None:
                    continue
                if links.is_plain:
                    if links.loss and self._rng.random() < links.loss:
                        continue
                    arrives = now + links.network.latency.draw(self._rng)
                    entry = (arrives, self._number(), _PACKET, target, data, node.address)
                    heapq.heappush(self._heap, entry)
                else:
                    for delay in links.delays(node.address, to):
                        self._push(now + delay, _PACKET, target, data, node.address)
            elif isinstance(effect, Tell):
                if self.on_event is not None:
                    self.on_event(now, node.address, effect.event)
            elif isinstance(effect, SendStream):
                node.streams_sent += 1
                node.stream_bytes_sent += len(effect.data)
                network = links.network
                deadline = now + network.stream_timeout_s
                self._try_stream(
                    _Stream(node, effect.to, effect.data, deadline, network.retransmit_s), now
                )
            else:
                raise TypeError(f"{node.address} asked for {effect!r}, which is no effect")

    def _held_back(self, node: Node, effects: list[Effect], now: float) -> list[Effect]:
        """Keep messages of a member that is held up; returns the effects that are not messages."""
        network = self.links.network
        rest: list[Effect] = []
        for effect in effects:
            if isinstance(effect, Tell):
                rest.append(effect)
            elif not node.hold_back(effect, network.receive_buffer_bytes, network.streams_waiting_max):
                node.overflowed += 1
                if isinstance(effect, SendStream):
                    deadline = now + network.stream_timeout_s
                    lost = _Stream(node, effect.to, effect.data, deadline, network.retransmit_s)
                    self._push(deadline, _FAILED, node, lost, effect.to)
        return rest

    def _try_stream(self, stream: _Stream, now: float) -> None:
        links, sender, to = self.links, stream.sender, stream.to
        target = self._nodes.get(to)
        source = sender.address
        cut = links.is_blocked(source, to) or links.is_blocked(to, source)
        if target is None or not target.is_host_up or cut:
            # No answer, so the first segment is sent again, with a growing delay.
            again = now + stream.again_s
            stream.again_s *= 2
            if again < stream.deadline:
                self._push(again, _TRY, sender, stream, to)
            else:
                self._push(stream.deadline, _FAILED, sender, stream, to)
        elif not target.is_up:
            refused = now + links.one_way_s(source, to) + links.one_way_s(to, source)
            self._push(refused, _FAILED, sender, stream, to)
        else:
            arrives = now + links.stream_s(source, to, len(stream.data))
            stream.target_generation = target.generation
            if arrives < stream.deadline:
                self._push(arrives, _STREAM, target, stream, to)
            else:
                self._push(stream.deadline, _FAILED, sender, stream, to)

    def _end_stream(self, target: Node, stream: _Stream, now: float) -> None:
        """Deliver a stream, unless its receiver is no longer there."""
        source = stream.sender.address
        if not target.is_host_up:
            self._push(stream.deadline, _FAILED, stream.sender, stream, stream.to)
        elif not target.is_up or target.generation != stream.target_generation:
            reset = now + self.links.one_way_s(stream.to, source)
            self._push(reset, _FAILED, stream.sender, stream, stream.to)
        elif target.backlog_streams >= self.links.network.streams_waiting_max:
            self._push(stream.deadline, _FAILED, stream.sender, stream, stream.to)
        else:
            self._arrive(target, _STREAM, stream.data, source, now)

    # -- the life of a member ----------------------------------------------------------------------

    def _start(self, node: Node, machine: Machine) -> None:
        now = self.now
        node.machine = machine
        node.is_up = node.is_host_up = True
        node.generation += 1
        node.stops = node.holds = 0
        node.look()
        if self.on_step is not None:
            self.on_step(now, "start", node.address, "", b"")
        if self.on_life is not None:
            self.on_life(now, node.address, True)
        self._carry_out(node, machine.start(node.local(now)), now)
        if node.then is not None:
            self._carry_out(node, node.then(machine, node.local(now)), now)
        self._arm(node, now)

    def _end(self, node: Node, *, with_host: bool) -> None:
        if node.is_up and self.on_life is not None:
            self.on_life(self.now, node.address, False)
        node.is_up = False
        node.is_host_up = node.is_host_up and not with_host
        node.stops = node.holds = 0
        node.forget_backlog()
        node.look()

    def _pause(self, node: Node) -> None:
        if node.is_up:
            node.stops += 1
            node.look()

    def _unpause(self, node: Node) -> None:
        """Run again, unless another fault still stops it."""
        if not node.stops:
            return
        node.stops -= 1
        node.look()
        if node.stops or not node.is_up:
            return
        now = self.now
        if self._resume == "timers":
            while node.machine.next_due <= (local := node.local(now)):
                self._tick(node, local, now)
        self._drain(node, now)
        wanted, node.wanted = node.wanted, []
        for action in wanted:
            self._carry_out(node, action(node.machine, node.local(now)), now)
        self._arm(node, now)

    def _hold(self, node: Node) -> None:
        if node.is_up:
            node.holds += 1
            node.look()

    def _release(self, node: Node) -> None:
        """Let its messages through, unless another fault still holds them up."""
        if not node.holds:
            return
        node.holds -= 1
        node.look()
        if node.holds or not node.is_up:
            return
        self._carry_out(node, node.take_outbox(), self.now)
        self._drain(node, self.now)
        self._arm(node, self.now)

    # -- the heap ----------------------------------------------------------------------------------

    def _arm(self, node: Node, now: float) -> None:
        """Make sure that a timer pops when the machine is due, or earlier."""
        due = node.machine.next_due
        if not node.is_plain:
            due = node.true(due)
        if due < node.timers[-1]:
            self._push_timer(node, due if due > now else now)

    def _push_timer(self, node: Node, at: float) -> None:
        node.timers.append(at)
        heapq.heappush(self._heap, (at, self._number(), _TIMER, node, None, ""))

    def _push(self, at: float, kind: int, node: Node | None, payload: _Payload, other: Address) -> None:
        heapq.heappush(self._heap, (at, self._number(), kind, node, payload, other))
