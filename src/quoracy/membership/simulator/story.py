"""The story of a run: how each member was seen over time, the moments that matter, and the sums.

`tell(cluster)` goes once through faults and changes in the order of their time, and counts for every
member how many of those that are up see it as alive, suspected or dead.  The text timeline and the
pictures are made from the resulting `Story` alone.
"""

from __future__ import annotations

import enum
import heapq
import math
from collections.abc import Iterator

import msgspec

from quoracy.membership.model import MemberState
from quoracy.membership.simulator.faults import (
    Crash,
    Drift,
    Fault,
    Leave,
    Loss,
    OneWay,
    Partition,
    Slow,
    Stall,
    describe,
    named,
)
from quoracy.membership.simulator.swim_cluster import Change, FaultSeen, Life, SwimCluster

__all__ = ["Detection", "Level", "Moment", "MomentKind", "Story", "Summary", "duration", "tell"]


class Level(enum.IntEnum):
    """How all others together see a member."""

    ABSENT = 0  # known to none
    ALIVE = 1  # to all that know it
    SUSPECTED = 2  # by some
    DISPUTED = 3  # dead or left to some, present to others
    DEAD = 4  # to all that are up
    LEFT = 5  # to all that are up, after its goodbye


class MomentKind(enum.Enum):
    FAULT = "fault"
    HEALED = "healed"  # a fault is over
    SUSPECTED = "suspected"  # the first suspicion
    REFUTED = "refuted"  # the last suspicion is over
    DEAD = "dead"  # it is dead to the first observer
    ALL_KNOW = "all know"  # it is dead or left to all
    BACK = "back"  # it is dead to none any more


class Moment(msgspec.Struct, frozen=True):
    """Something that gets a line in the timeline."""

    time: float
    kind: MomentKind
    subject: str
    text: str


class Detection(msgspec.Struct, frozen=True):
    """How a crash was noticed: seconds after it, None if it was not."""

    subject: str
    crashed_at: float
    first_suspected_s: float | None
    first_dead_s: float | None
    all_know_s: float | None


class Summary(msgspec.Struct, frozen=True):
    """The sums of a run.

    A false positive is a reported death of a member without a fault: no fault named it, and its process
    runs.  `false_at_healthy` counts those reported by members that were without a fault, too.  Loss
    names no member; a partition names all.
    wrongly_dead: pairs at the end in which one that is up sees another that is up as dead.
    """

    members: int
    seconds: float
    seed: int
    detections: tuple[Detection, ...]
    suspicions: int
    false_positives: int
    false_at_healthy: int
    wrongly_dead: int
    packets_per_member_s: float
    bytes_per_member_s: float
    streams_per_member_s: float
    events: int


class Story(msgspec.Struct, frozen=True):
    """The story of a run.  levels: the times at which the level of each member changed, from 0 s on."""

    names: tuple[str, ...]
    seconds: float
    seed: int
    faults: tuple[FaultSeen, ...]
    levels: dict[str, list[tuple[float, Level]]]
    moments: tuple[Moment, ...]
    summary: Summary


def tell(cluster: SwimCluster) -> Story:
    """The story of a run so far.

    >>> from quoracy.membership.simulator.swim_cluster import swim_cluster
    >>> cluster = swim_cluster(8, seed=3)
    >>> cluster.world.crash("m5", at=2.0)
    >>> cluster.run(until=40.0)
    >>> [moment.kind.value for moment in tell(cluster).moments]
    ['fault', 'suspected', 'dead', 'all know']
    """
    teller = _Teller(cluster)
    for happened in teller.in_order():
        match happened:
            case FaultSeen():
                teller.fault(happened)
            case Life():
                teller.life(happened)
            case Change():
                teller.change(happened)
            case Moment():
                teller.moment(happened)
    return teller.story()


class _Views:
    """How one member is seen: the numbers of members that are up, by what they believe."""

    __slots__ = ("believers", "dead", "left", "suspects")

    def __init__(self) -> None:
        self.believers = self.suspects = self.dead = self.left = 0  # suspects are believers, too

    def count(self, state: MemberState | None, by: int) -> None:
        if state is MemberState.ALIVE:
            self.believers += by
        elif state is MemberState.SUSPECT:
            self.believers += by
            self.suspects += by
        elif state is MemberState.DEAD:
            self.dead += by
        elif state is MemberState.LEFT:
            self.left += by

    @property
    def level(self) -> Level:
        if self.dead or self.left:
            if self.believers:
                return Level.DISPUTED
            return Level.DEAD if self.dead > self.left else Level.LEFT
        if self.suspects:
            return Level.SUSPECTED
        return Level.ALIVE if self.believers else Level.ABSENT


class _Teller:
    def __init__(self, cluster: SwimCluster) -> None:
        self._cluster = cluster
        self._moments: list[Moment] = []
        self._first = frozenset(cluster.known_at_first)
        self._up: set[str] = set(self._first)  # these start at 0 s
        # Only what differs from the start: observer -> subject -> state.
        self._seen: dict[str, dict[str, MemberState | None]] = {name: {} for name in cluster.names}
        self._afresh: set[str] = set()  # these were restarted, and knew no other
        self._views = {name: _Views() for name in cluster.names}
        for name in self._first:
            self._views[name].believers = len(self._first) - 1
        self._levels: dict[str, list[tuple[float, Level]]] = {
            name: [(0.0, views.level)] for name, views in self._views.items()
        }
        self._troubled: set[str] = set()  # a fault names them
        self._ended: dict[str, float] = {}  # members that are down, and since when
        self._left: set[str] = set()
        self._crashes: list[tuple[str, float]] = []
        self._noticed: dict[tuple[str, float], dict[MomentKind, float]] = {}
        self._suspicions = self._false = self._false_at_healthy = 0
        for seen in cluster.faults:
            self._troubled.update(_troubles(seen.fault, cluster.names))

    def in_order(self) -> Iterator[FaultSeen | Life | Change | Moment]:
        cluster = self._cluster
        ends = sorted(_ends(cluster.faults, cluster.world.now), key=lambda moment: moment.time)
        sources = (cluster.faults, cluster.lives, cluster.changes, ends)
        return heapq.merge(*sources, key=lambda happened: happened.time)

    # -- what happened -----------------------------------------------------------------------------

    def fault(self, seen: FaultSeen) -> None:
        time, fault = seen.time, seen.fault
        subject = getattr(fault, "address", "")
        self._moments.append(Moment(time, MomentKind.FAULT, subject, describe(fault)))
        if isinstance(fault, Crash) and subject in self._up:
            self._crashes.append((subject, time))
        if isinstance(fault, Leave) and subject in self._up:
            self._left.add(subject)
            self._ended[subject] = time

    def moment(self, moment: Moment) -> None:
        self._moments.append(moment)

    def life(self, life: Life) -> None:
        name = life.name
        if life.begins:
            self._up.add(name)
            self._left.discard(name)
            self._ended.pop(name, None)
            return
        self._up.discard(name)
        self._ended.setdefault(name, life.time)
        # Its own view no longer counts.
        for subject, views in self._views.items():
            if subject != name:
                views.count(self._state(name, subject), -1)
                self._note(subject, life.time)
        self._seen[name].clear()
        self._afresh.add(name)

    def change(self, change: Change) -> None:
        observer, subject = change.observer, change.subject
        if observer == subject or observer not in self._up:
            return
        views = self._views[subject]
        before = self._state(observer, subject)
        views.count(before, -1)
        views.count(change.state, +1)
        self._seen[observer][subject] = change.state
        self._suspicions += change.state is MemberState.SUSPECT and before is not MemberState.SUSPECT
        if change.state is MemberState.DEAD and before is not MemberState.DEAD:
            self._judge(observer, subject)
        self._note(subject, change.time, observer)

    def _judge(self, observer: str, subject: str) -> None:
        if subject not in self._troubled:
            self._false += 1
            self._false_at_healthy += observer not in self._troubled

    def _state(self, observer: str, subject: str) -> MemberState | None:
        seen = self._seen[observer]
        if subject in seen:
            return seen[subject]
        knew = observer in self._first and subject in self._first and observer not in self._afresh
        return MemberState.ALIVE if knew else None

    def _note(self, subject: str, time: float, by: str = "") -> None:
        """Keep the new level, and a moment if it is one."""
        line = self._levels[subject]
        old, new = line[-1][1], self._views[subject].level
        if old is new:
            return
        if line[-1][0] == time:
            line[-1] = (time, new)
        else:
            line.append((time, new))
        gone = (Level.DEAD, Level.LEFT)
        if new is Level.SUSPECTED and old <= Level.ALIVE:
            self._add(
                time, MomentKind.SUSPECTED, subject, f"{subject} is suspected by {by or 'someone'}"
            )
        elif new is Level.ALIVE and old is Level.SUSPECTED:
            self._add(time, MomentKind.REFUTED, subject, f"nobody suspects {subject} any more")
        if new >= Level.DISPUTED and old < Level.DISPUTED:
            who = by or "someone"
            dead = f"{subject} is dead to {who}"
            text = dead if self._views[subject].dead else f"{who} knows that {subject} left"
            self._add(time, MomentKind.DEAD, subject, text)
        if new in gone and old not in gone:
            dead = f"{subject} is dead to everyone"
            text = dead if new is Level.DEAD else f"everyone knows that {subject} left"
            self._add(time, MomentKind.ALL_KNOW, subject, text)
        if new in (Level.ALIVE, Level.SUSPECTED) and old >= Level.DISPUTED:
            self._add(time, MomentKind.BACK, subject, f"{subject} is back for everyone")

    def _add(self, time: float, kind: MomentKind, subject: str, text: str) -> None:
        ended = self._ended.get(subject)
        if ended is not None:
            self._noticed.setdefault((subject, ended), {}).setdefault(kind, time - ended)
            if kind is not MomentKind.BACK:
                since = "it said goodbye" if subject in self._left else "it ended"
                text += f", {duration(time - ended)} after {since}"
        self._moments.append(Moment(time, kind, subject, text))

    # -- the end -----------------------------------------------------------------------------------

    def story(self) -> Story:
        cluster, world = self._cluster, self._cluster.world
        return Story(
            names=cluster.names,
            seconds=world.now,
            seed=world.seed,
            faults=tuple(cluster.faults),
            levels=self._levels,
            moments=tuple(self._moments),
            summary=self._summary(),
        )

    def _summary(self) -> Summary:
        cluster, world = self._cluster, self._cluster.world
        totals = world.counters()
        member_seconds = max(1e-9, world.now * len(cluster.names))
        wrong = sum(
            state is MemberState.DEAD and subject in self._up and world.is_up(subject)
            for observer in self._up
            for subject, state in self._seen[observer].items()
        )
        return Summary(
            members=len(cluster.names),
            seconds=world.now,
            seed=world.seed,
            detections=tuple(self._detection(name, at) for name, at in self._crashes),
            suspicions=self._suspicions,
            false_positives=self._false,
            false_at_healthy=self._false_at_healthy,
            wrongly_dead=wrong,
            packets_per_member_s=totals.packets_sent / member_seconds,
            bytes_per_member_s=(totals.bytes_sent + totals.stream_bytes_sent) / member_seconds,
            streams_per_member_s=totals.streams_sent / member_seconds,
            events=world.events_count,
        )

    def _detection(self, name: str, at: float) -> Detection:
        noticed = self._noticed.get((name, at), {})
        return Detection(
            subject=name,
            crashed_at=at,
            first_suspected_s=noticed.get(MomentKind.SUSPECTED),
            first_dead_s=noticed.get(MomentKind.DEAD),
            all_know_s=noticed.get(MomentKind.ALL_KNOW),
        )


def _troubles(fault: Fault, names: tuple[str, ...]) -> tuple[str, ...]:
    """The members whose suspicion a fault explains."""
    if isinstance(fault, Partition):
        return names
    return () if isinstance(fault, Loss | Drift) else named(fault)


def _ends(faults: list[FaultSeen], now: float) -> Iterator[Moment]:
    """The ends of lasting faults, as moments."""
    for seen in faults:
        fault = seen.fault
        until = getattr(fault, "until", math.inf)
        if until >= now:
            continue
        match fault:
            case Partition():
                yield Moment(until, MomentKind.HEALED, "", "the partition heals")
            case OneWay():
                yield Moment(until, MomentKind.HEALED, "", "the blocked ways are open again")
            case Stall(address) | Slow(address):
                yield Moment(until, MomentKind.HEALED, address, f"{address} is well again")
            case Loss():
                yield Moment(until, MomentKind.HEALED, "", "the loss is over")
            case _:
                pass


def duration(seconds: float) -> str:
    """A length of time as text.

    >>> duration(0.25), duration(3.14159)
    ('250 ms', '3.14 s')
    """
    if not math.isfinite(seconds):
        return "never"
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"
