"""A cluster, as seen from our member: the members, the events, and messages to the others.

    async with membership.join(bind="0.0.0.0:7946", seeds=["10.0.0.1"], meta={"zone": "a"}) as cluster:
        async for event in cluster.events(current_first=True):
            print(event)

The SWIM and gossip machines decide; this module attaches them to one endpoint and shows what they know.

Invariants
    * Everything a user reads (`members`, `me`, `state`) is current and costs no message.
    * Leaving the block says goodbye, unless `leave` or `close` was called before, and then closes both
      sockets and ends every task and every stream of events.
    * A second cancellation while leaving closes at once: the others detect the absence.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import assert_never

import msgspec

from quoracy.clock import Clock
from quoracy.errors import InvalidRequest, Unavailable
from quoracy.membership.gossip import Gossip, GossipSettings, GossipStatistics
from quoracy.membership.machine import Address, Effect
from quoracy.membership.model import (
    Conflict,
    JoinAnswered,
    MemberChange,
    MemberChangeKind,
    Message,
    SwimEvent,
)
from quoracy.membership.runtime.endpoint import GOSSIP_CHANNEL, SWIM_CHANNEL, Endpoint
from quoracy.membership.runtime.events import (
    BUFFER_EVENTS_MAX,
    Changed,
    ClusterEvent,
    ClusterState,
    EventStream,
    Feed,
    Health,
    MessageStream,
    Received,
)
from quoracy.membership.runtime.last_heard import Hearing
from quoracy.membership.runtime.member_view import MemberView, Meta, Views, encode_meta
from quoracy.membership.runtime.queries import REPORT_CHANNEL, AgentReport, MemberReport, Reporter
from quoracy.membership.runtime.seeds import SeedJoin
from quoracy.membership.runtime.traffic import TrafficStatistics
from quoracy.membership.settings import SwimSettings
from quoracy.membership.swim import Swim, SwimStatistics

__all__ = ["Cluster", "ClusterStatistics"]

_log = logging.getLogger(__name__)


class ClusterStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Counters of this member since its start."""

    swim: SwimStatistics
    gossip: GossipStatistics
    traffic: TrafficStatistics


class Cluster:
    """A cluster, seen from the one member of it that is ours.  Made by `join`.

    state: keys and values of every member, for what is too large for metadata.
    health: which members are alive, for callers that need nothing else.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        name: str,
        meta: bytes,
        settings: SwimSettings,
        gossip_settings: GossipSettings,
        is_encrypted: bool,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._endpoint, self._clock, self._settings = endpoint, clock, settings
        self._is_encrypted = is_encrypted
        self._started_at = clock.now()
        self._swim = Swim(name, endpoint.address, rng=rng, settings=settings, meta=meta)
        # A restarted member needs a larger generation: that is the wall clock of its machine.
        generation = max(1, int(clock.wall() * 1_000))
        self._gossip = Gossip(name, generation=generation, rng=rng, settings=gossip_settings)
        self._hearing = Hearing(probe_interval_s=settings.probe_interval_s)
        self._swim.on_packet = self._hearing.packet_from
        self._views = Views()
        self._since: dict[str, float] = {}
        self._events: Feed[ClusterEvent] = Feed()
        self._messages: Feed[Received] = Feed()
        self._joining: SeedJoin | None = None
        self._name_taken: Conflict | None = None
        self.is_impostor = False  # another member had our name when we joined
        self._is_entering = self._are_peers_stale = False
        self._has_left = False
        self._tasks: set[asyncio.Task[None]] = set()
        self.state = ClusterState(self._gossip, self._call_gossip)
        self.health = Health(self._swim.members, lambda: self.events(current_first=True))

    # -- who is there --------------------------------------------------------------------------------

    @property
    def me(self) -> MemberView:
        """Our own member, as the others know it."""
        return self._views.of(self._swim.me)

    @property
    def members(self) -> tuple[MemberView, ...]:
        """The members that are alive or suspected, including ourselves, by name."""
        return tuple(view for view in self.known if view.is_present)

    @property
    def known(self) -> tuple[MemberView, ...]:
        """The members, and those that died or left and are not forgotten yet, by name."""
        members = self._swim.members
        return tuple(self._views.of(members[name]) for name in sorted(members))

    def member(self, name: str) -> MemberView | None:
        """The member of this name, also if it is dead or left; None if it is not known."""
        member = self._swim.members.get(name)
        return None if member is None else self._views.of(member)

    def rtt_s(self, name: str) -> float | None:
        """How long a direct answer of that member takes; None if it was not asked yet."""
        return self._swim.rtt_s(name)

    def phi(self, name: str) -> float | None:
        """How improbable the silence of that member is: 1 is one time in ten.

        None if it was never heard from directly.  It has no part in SWIM's decisions.
        """
        heard = self._hearing.heard(name, self._clock.now())
        return None if heard is None else heard.phi

    # -- what happens --------------------------------------------------------------------------------

    def events(
        self, *, current_first: bool = False, buffer_max: int = BUFFER_EVENTS_MAX
    ) -> EventStream:
        """All changes from now on, for `async for`.  It ends when we have left.

        current_first: begin with a `Snapshot` of the members.  buffer_max: a reader that is further
        behind gets one `Snapshot` that says how much it missed.
        """
        stream = EventStream(lambda: self.members, current_first=current_first, buffer_max=buffer_max)
        self._events.add(stream)
        return stream

    def messages(self, *, buffer_max: int = BUFFER_EVENTS_MAX) -> MessageStream:
        """Messages to us or to everyone, from now on.  It ends when we have left.

        If more than `buffer_max` wait, the oldest are dropped; the next one read says how many.
        """
        stream = MessageStream(buffer_max=buffer_max)
        self._messages.add(stream)
        return stream

    # -- what we do ----------------------------------------------------------------------------------

    async def broadcast(self, payload: bytes) -> None:
        """Send to all others as gossip: almost all receive it, once, soon, in no order.

        It must fit into a packet, some 1,200 bytes: `InvalidRequest` if it does not.  There is no
        answer, and members that join later do not receive it.
        """
        self._call_swim(lambda now: self._swim.broadcast(payload, now))

    async def send(self, name: str, payload: bytes) -> None:
        """Send to one member: in one packet, which may be lost; as a stream if it is too long for it.

        Raises `InvalidRequest` if there is no such member.
        """
        self._call_swim(lambda now: self._swim.send(name, payload, now))

    async def update_meta(self, meta: Meta) -> None:
        """Change our metadata; the others receive it with the next gossip."""
        encoded = encode_meta(meta)
        self._call_swim(lambda now: self._swim.update_meta(encoded, now))

    async def leave(self, *, timeout: float = 5.0) -> None:
        """Say goodbye, wait until that was sent, and stop.  The others do not report a death.

        Stops after `timeout` in any case.  Called again, it does nothing.
        """
        if self._has_left:
            return
        if self._endpoint.is_stopped:
            await self.close()
            return
        self._has_left = True
        await self._stop_tasks()
        told = asyncio.Event()
        self._swim.on_left = told.set
        try:
            self._since[self._swim.name] = self._clock.now()
            self._endpoint.call(SWIM_CHANNEL, self._swim.leave)
            with contextlib.suppress(TimeoutError):  # the others detect the absence
                async with asyncio.timeout(timeout):
                    await told.wait()
        finally:
            await self.close()

    async def close(self) -> None:
        """Stop at once, without a goodbye, as if this process had died."""
        self._has_left = True
        await self._stop_tasks()
        self._end_streams()
        await self._endpoint.close()

    @property
    def has_left(self) -> bool:
        """Whether `leave` or `close` was called: nothing here is current any more."""
        return self._has_left

    @property
    def seeds_missing(self) -> str:
        """Which seeds have not answered, and why, as text; empty if all have."""
        return "" if self._joining is None or self._joining.is_done else self._joining.why_not

    # -- for operators -------------------------------------------------------------------------------

    def statistics(self) -> ClusterStatistics:
        return ClusterStatistics(
            swim=self._swim.statistics(),
            gossip=self._gossip.statistics(),
            traffic=self._endpoint.statistics(),
        )

    def report(self) -> AgentReport:
        """What `quoracy members` shows."""
        traffic = msgspec.structs.asdict(self._endpoint.statistics())
        dropped = traffic.pop("dropped")
        traffic["unsent"] = sum(traffic["unsent"].values())
        return AgentReport(
            name=self._swim.name,
            address=self._swim.address,
            uptime_s=self._clock.now() - self._started_at,
            health=self._swim.health,
            health_max=self._settings.health_max,
            is_encrypted=self._is_encrypted,
            members=[self._report_of(view) for view in self.known],
            protocol=msgspec.structs.asdict(self._swim.statistics()),
            traffic=traffic,
            dropped=dict(dropped),
        )

    def _report_of(self, view: MemberView) -> MemberReport:
        now = self._clock.now()
        # Nothing is expected of a member that is gone, so it has no phi.
        heard = self._hearing.heard(view.name, now) if view.is_present else None
        return MemberReport(
            name=view.name,
            address=view.address,
            state=view.state.name.lower(),
            incarnation=view.incarnation,
            since_s=now - self._since.get(view.name, self._started_at),
            heard_s=None if heard is None else heard.ago_s,
            phi=None if heard is None else heard.phi,
            rtt_s=self._swim.rtt_s(view.name),
            meta=dict(view.meta),
            meta_bytes=view.meta_bytes,
        )

    # -- for `join` ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Attach the machines to the endpoint."""
        self._endpoint.attach(
            SWIM_CHANNEL, self._swim, self._swim_told, on_unreachable=self._unreachable
        )
        self._endpoint.attach(GOSSIP_CHANNEL, self._gossip, self.state.told)
        self._endpoint.attach(REPORT_CHANNEL, Reporter(self.report), _nothing)
        self._in_background(self._end_with_endpoint())

    async def find_others(
        self, joining: SeedJoin, *, wait: bool, keep_trying: bool, timeout_s: float
    ) -> None:
        """Ask the seeds.  Raises `Unavailable` if none answers, unless `keep_trying`."""
        self._joining = joining
        if not wait:
            self._in_background(self._find_later(joining, keep_trying=keep_trying, timeout_s=timeout_s))
            return
        self._is_entering = True
        try:
            await joining.first_round(timeout_s)
        except Unavailable as error:
            if not keep_trying or joining.is_hopeless:
                raise
            _log.info("%s", error)
        finally:
            self._is_entering = False
        if self._name_taken is not None:
            self.is_impostor = True
            raise InvalidRequest(
                f"the name {self._swim.name!r} belongs to the member at {self._name_taken.claimed_by}. "
                "Give this one another name; or, if it is what that one was before it was restarted "
                "elsewhere, wait until the others have noticed that it died."
            )
        if keep_trying and not joining.is_done:
            self._in_background(joining.go_on())

    def ask_seeds(self, seeds: Sequence[Address]) -> None:
        self._endpoint.call(SWIM_CHANNEL, lambda now: self._swim.join(seeds, now))

    def is_member_at(self, address: Address) -> bool:
        """Whether another present member has this address."""
        return any(
            member.address == address and member.is_present
            for member in self._swim.members.values()
            if member.name != self._swim.name
        )

    async def _find_later(self, joining: SeedJoin, *, keep_trying: bool, timeout_s: float) -> None:
        try:
            await joining.first_round(timeout_s)
        except Unavailable as error:
            _log.warning("%s", error)
        if keep_trying:
            await joining.go_on()

    # -- inside --------------------------------------------------------------------------------------

    def _swim_told(self, event: object) -> None:
        swim_event: SwimEvent = event  # type: ignore[assignment]  # the events of this machine
        match swim_event:
            case MemberChange(kind, member, by):
                if kind is not MemberChangeKind.UPDATED:
                    self._since[member.name] = self._clock.now()
                if kind is MemberChangeKind.JOINED:
                    self._hearing.know(member.name, member.address)
                view = self._views.of(member)
                if kind is MemberChangeKind.FORGOTTEN:
                    self._forget(member.name)
                self._renew_peers()
                self._events.put(Changed(kind, view, by))
            case Message(sender, payload, is_broadcast):
                self._messages.put(Received(sender, payload, is_broadcast))
            case Conflict():
                if swim_event.known.name == self._swim.name:
                    self._name_taken = swim_event
                if not self._is_entering:  # otherwise it is raised
                    _log.warning(
                        "%s claims the name %r, which is that of %s; one of them must be renamed",
                        swim_event.claimed_by,
                        swim_event.known.name,
                        swim_event.known.address,
                    )
                self._events.put(swim_event)
            case JoinAnswered(seed):
                if self._joining is not None:
                    self._joining.answered(seed)
            case _:
                assert_never(swim_event)

    def _forget(self, name: str) -> None:
        self._views.forget(name)
        self._hearing.forget(name)
        self._since.pop(name, None)
        self._endpoint.call(GOSSIP_CHANNEL, lambda now: self._gossip.forget(name, now))

    def _unreachable(self, to: Address, reason: str) -> None:
        if self._joining is not None:
            self._joining.failed(to, reason)

    def _renew_peers(self) -> None:
        # Once for all changes of one turn of the loop: one message can bring thousands of members.
        if not self._are_peers_stale:
            self._are_peers_stale = True
            asyncio.get_running_loop().call_soon(self._renew_peers_now)

    def _renew_peers_now(self) -> None:
        self._are_peers_stale = False
        if self._endpoint.is_stopped:
            return
        others = [
            member.address
            for member in self._swim.members.values()
            if member.is_present and member.name != self._swim.name
        ]

        def renew(now: float) -> list[Effect]:
            self._gossip.set_peers(others)
            return self._gossip.tick(now)

        self._endpoint.call(GOSSIP_CHANNEL, renew)

    def _call_swim(self, act: Callable[[float], list[Effect]]) -> None:
        self._check_here()
        self._endpoint.call(SWIM_CHANNEL, act)

    def _call_gossip(self, act: Callable[[float], list[Effect]]) -> None:
        self._check_here()
        self._endpoint.call(GOSSIP_CHANNEL, act)

    def _check_here(self) -> None:
        if self._has_left:
            raise Unavailable(f"{self._swim.name} has left its cluster. Join again.")

    def _in_background(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _stop_tasks(self) -> None:
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _end_with_endpoint(self) -> None:
        """End the streams with the endpoint; leaving the block raises the error that stopped it."""
        with contextlib.suppress(Exception):
            await self._endpoint.wait_stopped()
        self._end_streams()

    def _end_streams(self) -> None:
        self._events.end()
        self._messages.end()
        self.state.end()


def _nothing(event: object) -> None:
    """A reporter has no events."""
    del event
