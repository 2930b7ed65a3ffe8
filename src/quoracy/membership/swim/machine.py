"""The SWIM machine: it decodes messages, keeps time, and leaves decisions to its parts.

    states        which members are alive, suspected, dead or left
    prober        pings, indirect pings, accusations
    push_pull     joining, comparing whole tables, contacting the dead
    packets       packets with as much news as fits

Invariants
    * A packet or message is decoded whole before any of it counts.
    * `next_due` is the earliest of what the parts wait for; gossip is due only while there is news.
    * A broadcast of a user is delivered at most once while it is among the last `_SHOUTS_MAX` that were
      received; one that arrives again later than that is delivered again.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence

from quoracy.errors import InvalidRequest
from quoracy.membership.machine import Address, Effect
from quoracy.membership.model import ADDRESS_CHARS_MAX, Member, Message, SwimStatistics
from quoracy.membership.settings import META_BYTES_MAX, NAME_BYTES_MAX, SwimSettings
from quoracy.membership.swim.member_states import MemberStates
from quoracy.membership.swim.member_table import MemberTable
from quoracy.membership.swim.messages import (
    Ack,
    Alive,
    Dead,
    Direct,
    Join,
    Nack,
    Ping,
    PingRequest,
    Shout,
    Suspect,
    SyncBuckets,
    SyncRecords,
    SyncRoot,
    Welcome,
    decode_packet,
    decode_stream,
    encode,
)
from quoracy.membership.swim.packets import HEAD_BYTES, Packets
from quoracy.membership.swim.probe import Prober
from quoracy.membership.swim.push_pull import PushPull
from quoracy.membership.swim.send_queue import Outbox

__all__ = ["Swim", "SwimStatistics"]

_SHOUTS_MAX = 4_096
_DEFAULT = SwimSettings()


class Swim:
    """One member of a cluster, without a network.

    members: who is known from the start; a `MemberTable` is copied, which is quick.
    on_packet: called with the source of each packet that made sense.
    on_left: called once, when the goodbye has gone out.

    >>> a, b = (Swim(name, f"{name}:1", rng=random.Random(name)) for name in "ab")
    >>> _ = a.start(0.0), b.start(0.0)
    >>> asked = b.join(["a:1"], 0.0)
    >>> answer = a.receive_stream(asked[0].data, "b:1", 0.1)
    >>> events = b.receive_stream(answer[1].data, "a:1", 0.2)
    >>> sorted(a.members), sorted(b.members)
    (['a', 'b'], ['a', 'b'])
    """

    on_packet: Callable[[Address, float], None] | None = None
    on_left: Callable[[], None] | None = None

    def __init__(
        self,
        name: str,
        address: Address,
        *,
        rng: random.Random,
        settings: SwimSettings = _DEFAULT,
        meta: bytes = b"",
        members: Iterable[Member] | MemberTable = (),
    ) -> None:
        _check_name(name)
        _check_meta(meta)
        if not 0 < len(address) <= ADDRESS_CHARS_MAX:
            raise InvalidRequest(f"an address has 1 to {ADDRESS_CHARS_MAX} characters, not {address!r}")
        self.name, self.address = name, address
        self.next_due = math.inf
        self._settings, self._rng = settings, rng
        self._out = Outbox()
        self._states = MemberStates(Member(name, address, 1, meta=meta), settings, self._out, members)
        self._packets = Packets(self._states, settings, self._out)
        self._prober = Prober(self._states, settings, rng, self._out, self._packets)
        self._push_pull = PushPull(self._states, settings, rng, self._out)
        self._gossiped_at = -math.inf
        self._shouts_heard: dict[tuple[str, int], None] = {}  # oldest first
        self._shout_number = rng.getrandbits(40)  # a restart does not repeat its numbers
        self._pauses_count = 0

    # -- what is known -------------------------------------------------------------------------------

    @property
    def me(self) -> Member:
        return self._states.me

    @property
    def incarnation(self) -> int:
        return self._states.me.incarnation

    @property
    def members(self) -> Mapping[str, Member]:
        """Every known member, including ourselves, the dead and those that left; a live view."""
        return self._states.table.members

    @property
    def present_count(self) -> int:
        """How many are alive or suspected, with ourselves."""
        return self._states.table.present_count

    @property
    def health(self) -> int:
        """The local health score: 0 is healthy, `health_max` is worst."""
        return self._states.health.score

    @property
    def has_left(self) -> bool:
        """After `leave`: the goodbye was sent as often as planned, or there is nobody else."""
        if not self._states.is_leaving:
            return False
        return self.name not in self._states.news or not self._states.others_count

    def rtt_s(self, name: str) -> float | None:
        """How long a direct answer takes, smoothed; None before the first."""
        return self._prober.rtt_s(name)

    def statistics(self) -> SwimStatistics:
        states, prober = self._states, self._prober
        return SwimStatistics(
            probes=prober.probes_count,
            probes_failed=prober.failed_count,
            streams_only=prober.streams_only_count,
            suspicions=states.suspicions_count,
            refutations=states.refutations_count,
            deaths=states.deaths_count,
            differences=self._push_pull.differences_count,
            pauses=self._pauses_count,
            turned_away=states.turned_away_count,
            news_dropped=states.news.dropped_count + self._packets.shouts.dropped_count,
            news_waiting=len(states.news) + len(self._packets.shouts),
            health=states.health.score,
        )

    # -- what the owner wants ------------------------------------------------------------------------

    def start(self, now: float) -> list[Effect]:
        """Begin to probe.  Others learn of us by `join`, or by hearing from us."""
        self._prober.start(now)
        self._push_pull.start(now)
        return self._done(now)

    def join(self, seeds: Sequence[Address], now: float) -> list[Effect]:
        """Exchange whole tables with these; an answer is reported as `JoinAnswered`."""
        self._check_present()
        self._states.say_alive()
        for seed in seeds:
            if seed != self.address:
                self._push_pull.join(seed)
        return self._done(now)

    def leave(self, now: float) -> list[Effect]:
        """Say goodbye.  Keep the machine going until `has_left`, so that the others hear it."""
        if not self._states.is_leaving:
            self._states.say_goodbye()
            self._prober.stop()
            self._push_pull.stop()
        return self._done(now)

    def update_meta(self, meta: bytes, now: float) -> list[Effect]:
        """Change our metadata, and send it to everyone."""
        _check_meta(meta)
        self._check_present()
        if meta != self.me.meta:
            self._states.say_changed(meta)
        return self._done(now)

    def send(self, name: str, payload: bytes, now: float) -> list[Effect]:
        """Send a message to one member: a datagram if it fits, a reliable message if not."""
        member = self.members.get(name)
        if member is None or not member.is_present:
            raise InvalidRequest(f"there is no member {name!r} to send to; see who is in `members`")
        data = encode(Direct(self.name, payload))
        if len(data) + HEAD_BYTES <= self._settings.packet_bytes_max:
            self._packets.send(member.address, [data])
        else:
            self._out.stream(member.address, data)
        return self._done(now)

    def broadcast(self, payload: bytes, now: float) -> list[Effect]:
        """Send a message to everyone, as news: almost all get it, in no order."""
        self._check_present()
        shout = Shout(self.name, self._shout_number + 1, payload)
        data = encode(shout)
        if len(data) > (room := self._settings.packet_bytes_max - HEAD_BYTES):
            raise InvalidRequest(
                f"a broadcast must fit into one packet: {len(payload)} bytes are "
                f"{len(data) - room} too many; send it to members one by one"
            )
        self._shout_number = shout.number
        self._remember(shout)
        self._packets.shouts.put(f"{shout.origin}:{shout.number}", data)
        return self._done(now)

    # -- what happens --------------------------------------------------------------------------------

    def tick(self, now: float) -> list[Effect]:
        late_s = now - self.next_due
        if late_s > self._settings.probe_timeout_s and self._settings.minds_pauses:
            # We were stopped, or starved: answers may be waiting to be read, so no silence counts.
            self._pauses_count += 1
            self._states.health.note(+1)
            # What waits to be read is read before any deadline passes.
            read_by = now + self._settings.probe_timeout_s
            self._states.postpone(late_s, read_by)
            self._prober.postpone(late_s, read_by)
        self._states.expire(now)
        self._prober.tick(now)
        self._push_pull.tick(now)
        if self._packets.has_news and self._gossip_due <= now:
            self._gossip(now)
        self.next_due = now  # everything that was overdue is done
        return self._done(now)

    def receive(self, data: bytes, sender: Address, now: float) -> list[Effect]:
        for message in decode_packet(data):
            # News comes first, since a packet can hold a hundred pieces of it, and is recognised by its
            # exact type: message classes have a metaclass, which makes isinstance slow.
            if type(message) is Alive:
                self._states.hear_alive(message, now)
                continue
            if type(message) is Suspect:
                self._states.hear_suspect(message, now)
                continue
            match message:
                case Dead():
                    self._states.hear_dead(message, now)
                case Ping():
                    self._prober.hear_ping(message, sender)
                case Ack():
                    self._prober.hear_ack(message, now)
                case Nack():
                    self._prober.hear_nack(message, now)
                case PingRequest():
                    self._prober.hear_request(message, sender, now)
                case Direct():
                    self._out.tell(Message(message.sender, message.payload, is_broadcast=False))
                case Shout():
                    self._hear_shout(message)
        if self.on_packet is not None:
            self.on_packet(sender, now)
        return self._done(now)

    def receive_stream(self, data: bytes, sender: Address, now: float) -> list[Effect]:
        message = decode_stream(data)
        match message:
            case Ping():
                if message.target == self.name:
                    self._out.stream(sender, encode(Ack(message.seq)))
            case Ack():
                self._prober.hear_ack(message, now, is_stream=True)
            case Direct():
                self._out.tell(Message(message.sender, message.payload, is_broadcast=False))
            case Join():
                self._push_pull.hear_join(message, sender, now)
            case Welcome():
                self._push_pull.hear_welcome(message, sender, now)
            case SyncRoot():
                self._push_pull.hear_root(message, sender)
            case SyncBuckets():
                self._push_pull.hear_buckets(message, sender)
            case SyncRecords():
                self._push_pull.hear_records(message, sender, now)
        return self._done(now)

    def unreachable(self, to: Address, now: float) -> list[Effect]:
        self._prober.hear_unreachable(to, now)
        return self._done(now)

    # -- inside --------------------------------------------------------------------------------------

    @property
    def _gossip_due(self) -> float:
        return self._gossiped_at + self._settings.gossip_interval_s

    def _gossip(self, now: float) -> None:
        self._gossiped_at = now
        states, rng, fanout = self._states, self._rng, self._settings.gossip_fanout
        for member in states.table.some(fanout, rng, lambda _: True):
            if not self._packets.send_news(member.address):
                break
        dead = states.recently_dead(now)
        # A dead member is chosen as often as a living one, but is sent only its own death, so that it
        # can refute it.  News sent to the dead would be missing elsewhere.
        if dead and rng.random() < fanout * len(dead) / (len(dead) + states.others_count):
            self._packets.send_accusation(rng.choice(dead))

    def _hear_shout(self, shout: Shout) -> None:
        if shout.origin == self.name or (shout.origin, shout.number) in self._shouts_heard:
            return
        self._remember(shout)
        data = encode(shout)
        if len(data) + HEAD_BYTES <= self._settings.packet_bytes_max:  # a longer one is never sent
            self._packets.shouts.put(f"{shout.origin}:{shout.number}", data)
        self._out.tell(Message(shout.origin, shout.payload, is_broadcast=True))

    def _remember(self, shout: Shout) -> None:
        self._shouts_heard[shout.origin, shout.number] = None
        if len(self._shouts_heard) > _SHOUTS_MAX:
            del self._shouts_heard[next(iter(self._shouts_heard))]

    def _check_present(self) -> None:
        if self._states.is_leaving:
            raise InvalidRequest(f"{self.name} has left; join again with a new member")

    def _done(self, now: float) -> list[Effect]:
        """The effects of this call; also sets `next_due`."""
        states = self._states
        due = self._prober.due
        if (sync := self._push_pull.due) < due:
            due = sync
        if (suspicion := states.suspicion_due) is not None and suspicion < due:
            due = suspicion
        if (forget := states.forget_due) is not None and forget < due:
            due = forget
        if self._packets.has_news and states.others_count:
            due = min(due, max(self._gossip_due, now))
        # A confirmation can move a deadline into the past: then it is due now, and we are not late.
        # What was overdue before stays overdue, so that a pause is noticed even if packets are read
        # before the first tick.
        self.next_due = max(due, min(self.next_due, now))
        if self.on_left is not None and self.has_left:
            on_left, self.on_left = self.on_left, None
            on_left()
        return self._out.take()


def _check_name(name: str) -> None:
    if not 0 < len(name.encode()) <= NAME_BYTES_MAX:
        raise InvalidRequest(f"a member's name has 1 to {NAME_BYTES_MAX} bytes, not {name!r}")


def _check_meta(meta: bytes) -> None:
    if len(meta) > META_BYTES_MAX:
        raise InvalidRequest(
            f"metadata has at most {META_BYTES_MAX} bytes, not {len(meta)}; what is larger or changes "
            "often belongs into the cluster's state"
        )
