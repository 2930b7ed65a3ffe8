"""Probing: one member after the other is pinged, and pinged indirectly if it does not answer.

A probe has three steps: a ping; if it is not answered within `probe_timeout_s`, a few others (helpers)
are asked to ping the same member, and a reliable message is sent to it as well; if no answer has come
when the interval is over, the member is suspected.  A member with a bad health score takes longer
intervals for its probes.

Helpers that get no answer say so (a nack): then the helpers at least reach us, and the fault is less
likely to be ours.  When all have sent a nack and the reliable message failed, the probe ends early.

Invariants
    * One probe at a time; it ends once, by an answer or by an accusation.
    * At most `_RELAYS_MAX` probes are run for others; requests beyond that are ignored.
"""

from __future__ import annotations

import random
from collections import deque

from quoracy.membership.machine import Address
from quoracy.membership.model import Member, MemberState
from quoracy.membership.settings import SwimSettings
from quoracy.membership.swim.member_states import MemberStates
from quoracy.membership.swim.messages import Ack, Nack, Ping, PingRequest, encode
from quoracy.membership.swim.packets import Packets
from quoracy.membership.swim.send_queue import Outbox

__all__ = ["Prober"]

_RELAYS_MAX = 1_024
_RTT_WEIGHT = 0.25  # of the newest measurement


class Probe:
    """The probe that is under way."""

    __slots__ = (
        "answer_by", "end_by", "is_stream_failed", "nacks", "nacks_expected", "seq", "started",
        "streamed_to", "target",
    )  # fmt: skip

    def __init__(self, seq: int, target: Member, now: float, answer_by: float, end_by: float) -> None:
        self.seq, self.target = seq, target.name
        self.started, self.end_by = now, end_by
        self.answer_by: float | None = answer_by  # None: others were asked already
        self.nacks = self.nacks_expected = 0
        self.streamed_to: Address | None = None
        self.is_stream_failed = False

    @property
    def is_hopeless(self) -> bool:
        """All helpers have reported that they got no answer, and so has the stream."""
        return (
            self.answer_by is None
            and 0 < self.nacks_expected <= self.nacks
            and (self.streamed_to is None or self.is_stream_failed)
        )


class Relay:
    """A ping on behalf of another member."""

    __slots__ = ("asker", "asker_seq", "nack_at", "seq", "wants_nack")

    def __init__(self, seq: int, asker: Address, request: PingRequest, nack_at: float) -> None:
        self.seq, self.asker, self.asker_seq = seq, asker, request.seq
        self.wants_nack, self.nack_at = request.wants_nack, nack_at


class Prober:
    """All probes of one member: its own, and those for others."""

    def __init__(
        self,
        states: MemberStates,
        settings: SwimSettings,
        rng: random.Random,
        out: Outbox,
        packets: Packets,
    ) -> None:
        self._states, self._settings, self._rng = states, settings, rng
        self._out, self._packets = out, packets
        self._seq = rng.getrandbits(31)
        self._next_at = float("inf")
        self._probe: Probe | None = None
        self._relays: dict[int, Relay] = {}
        self._nacks_due: deque[Relay] = deque()  # all wait equally long
        self._rtts_s: dict[str, float] = {}
        self.probes_count = self.failed_count = self.streams_only_count = 0

    @property
    def due(self) -> float:
        probe = self._probe
        if probe is None:
            due = self._next_at
        else:
            due = probe.end_by if probe.answer_by is None else probe.answer_by
        if self._nacks_due:
            due = min(due, self._nacks_due[0].nack_at)
        return due

    def rtt_s(self, name: str) -> float | None:
        return self._rtts_s.get(name)

    def start(self, now: float) -> None:
        # At a random time, or members that are started together would probe in step.
        self._next_at = now + self._rng.random() * self._settings.probe_interval_s

    def stop(self) -> None:
        """Begin no more probes of our own, since we are leaving."""
        self._probe, self._next_at = None, float("inf")

    def postpone(self, seconds: float, at_least: float) -> None:
        """We were stopped for some seconds: move the deadlines of the probe, to `at_least` or later."""
        probe = self._probe
        if probe is not None:
            probe.end_by = max(probe.end_by + seconds, at_least)
            if probe.answer_by is not None:
                probe.answer_by = max(probe.answer_by + seconds, at_least)

    def tick(self, now: float) -> None:
        self._send_nacks(now)
        probe = self._probe
        if probe is not None:
            if probe.answer_by is not None and probe.answer_by <= now:
                self._ask_others(probe)
            if probe.end_by <= now:
                self._give_up(probe, now)
        if self._probe is None and self._next_at <= now:
            self._begin(now)

    # -- what arrives --------------------------------------------------------------------------------

    def hear_ping(self, ping: Ping, sender: Address) -> None:
        if ping.target != self._states.me.name:
            return  # meant for a member that had this address before us
        # A member can only refute what it knows.
        accusation = self._states.accusation(ping.source) if self._settings.buddy else None
        pieces = [encode(Ack(ping.seq))]
        if accusation is not None:
            pieces.append(accusation)
        self._packets.send(sender, pieces)

    def hear_ack(self, ack: Ack, now: float, *, is_stream: bool = False) -> None:
        probe = self._probe
        if probe is not None and probe.seq == ack.seq:
            if probe.answer_by is not None:  # else it may have come by way of another
                self._note_rtt(probe.target, now - probe.started)
            elif is_stream:
                self.streams_only_count += 1
            self._end(probe, now)
            self._states.health.note(-1)
            return
        relay = self._relays.pop(ack.seq, None)
        if relay is not None:
            self._packets.send(relay.asker, [encode(Ack(relay.asker_seq))])

    def hear_nack(self, nack: Nack, now: float) -> None:
        probe = self._probe
        if probe is not None and probe.seq == nack.seq:
            probe.nacks += 1
            if probe.is_hopeless:
                self._give_up(probe, now)

    def hear_request(self, request: PingRequest, sender: Address, now: float) -> None:
        self._drop_old_relays(now)
        if max(len(self._relays), len(self._nacks_due)) >= _RELAYS_MAX:
            return
        relay = Relay(self._next_seq(), sender, request, now + self._settings.probe_timeout_s)
        self._relays[relay.seq] = relay
        self._nacks_due.append(relay)
        ping = Ping(relay.seq, request.target, self._states.me.name)
        self._packets.send(request.address, [encode(ping)])

    def hear_unreachable(self, to: Address, now: float) -> None:
        probe = self._probe
        if probe is not None and probe.streamed_to == to:
            probe.is_stream_failed = True
            if probe.is_hopeless:
                self._give_up(probe, now)

    # -- the steps of a probe ------------------------------------------------------------------------

    def _begin(self, now: float) -> None:
        settings, states = self._settings, self._states
        self._next_at = now + settings.probe_interval_s
        target = states.table.next_probed(self._rng)
        if target is None:
            return
        self.probes_count += 1
        interval_s = states.health.scale(settings.probe_interval_s)
        self._probe = Probe(
            self._next_seq(), target, now, now + settings.probe_timeout_s, now + interval_s
        )
        pieces = [encode(Ping(self._probe.seq, target.name, states.me.name))]
        if settings.buddy and target.state is not MemberState.ALIVE:
            accusation = states.accusation(target.name)
            if accusation is not None:
                pieces.append(accusation)
        self._packets.send(target.address, pieces)

    def _ask_others(self, probe: Probe) -> None:
        probe.answer_by = None
        target = self._states.table.get(probe.target)
        if target is None:
            return
        helpers = self._states.table.some(
            self._settings.helpers,
            self._rng,
            lambda member: member.state is MemberState.ALIVE and member.name != target.name,
        )
        if self._settings.nacks:
            probe.nacks_expected = len(helpers)
        request = PingRequest(probe.seq, target.name, target.address, self._settings.nacks)
        for helper in helpers:
            self._packets.send(helper.address, [encode(request)])
        if self._settings.stream_probe:
            probe.streamed_to = target.address
            ping = Ping(probe.seq, target.name, self._states.me.name)
            self._out.stream(target.address, encode(ping))

    def _give_up(self, probe: Probe, now: float) -> None:
        self.failed_count += 1
        self._end(probe, now)
        # If the helpers are silent as well, the fault may be ours.  Without helpers only the target
        # counts.
        missing = probe.nacks_expected - probe.nacks
        self._states.health.note(max(missing, 0) if probe.nacks_expected else 1)
        self._states.accuse(probe.target, now)

    def _end(self, probe: Probe, now: float) -> None:
        self._probe = None
        self._next_at = max(now, probe.started + self._settings.probe_interval_s)

    # -- for others ----------------------------------------------------------------------------------

    def _send_nacks(self, now: float) -> None:
        due = self._nacks_due
        while due and due[0].nack_at <= now:
            relay = due.popleft()
            # The relay stays: an answer that comes later is still passed on.
            if relay.seq in self._relays and relay.wants_nack:
                self._packets.send(relay.asker, [encode(Nack(relay.asker_seq))])

    def _drop_old_relays(self, now: float) -> None:
        while self._relays:
            relay = next(iter(self._relays.values()))  # the oldest
            if now < relay.nack_at + self._settings.probe_interval_s:
                return
            del self._relays[relay.seq]

    def _next_seq(self) -> int:
        self._seq = (self._seq + 1) & 0xFFFF_FFFF
        return self._seq

    def _note_rtt(self, name: str, rtt_s: float) -> None:
        before = self._rtts_s.get(name)
        self._rtts_s[name] = rtt_s if before is None else before + _RTT_WEIGHT * (rtt_s - before)
        members = self._states.table.members
        if len(self._rtts_s) > len(members):  # some were forgotten
            self._rtts_s = {name: rtt_s for name, rtt_s in self._rtts_s.items() if name in members}
