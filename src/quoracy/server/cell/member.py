"""The etcd member of this machine, kept running as long as the node runs.

`supervised_member` starts it, waits until it serves, starts it again whenever it ends, and stops it
when the node stops.  `bootstrap` decides what to do with an empty data directory; this module does it.

Invariants
    * At most one etcd runs; it never outlives the context (see `etcd_process` for kill -9).
    * Once it has served, it is restarted for ever: after half a second, and after longer each time
      that it does not get as far as serving, up to half a minute.  Each end is logged, and why.
    * Data is never deleted.  The data of a removed member is moved aside, and its new place is logged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from quoracy.clock import Clock, SystemClock
from quoracy.engines.embedded.retention import Retention
from quoracy.errors import InvalidRequest, QuoracyError, Unavailable
from quoracy.remote.etcd_versions import known_faults
from quoracy.remote.store import RemoteStore, open_remote
from quoracy.remote.urls import Target, parse_url
from quoracy.server.cell import peers
from quoracy.server.cell.bootstrap import (
    Add,
    Begin,
    Join,
    KnownMember,
    Replace,
    View,
    Wait,
    initial_cluster,
    next_step,
)
from quoracy.server.cell.config import CellConfig
from quoracy.server.cell.etcd_process import (
    EtcdRun,
    LogFile,
    Program,
    etcd_flags,
    find_program,
    start_etcd,
)
from quoracy.store.rules import Limits

__all__ = ["supervised_member"]

_log = logging.getLogger(__name__)

GRACE_S = 10.0
_AGAIN_FIRST_S = 0.5
_AGAIN_MAX_S = 30.0
_STEADY_S = 60.0
_FAILED_STARTS_MAX = 3
_LOOK_S = 0.3
_LOG_LOOK_S = 1.0
_REMIND_S = 10.0
_ASK_S = 3.0
_QUORUM_S = 1.0

# What etcd says when its clients can connect (server/embed/serve.go), and before it ends because its id
# was removed (server/etcdserver/api/rafthttp/util.go).
_READY = "serving client traffic"
_REMOVED = "the member has been permanently removed from the cluster"


@asynccontextmanager
async def supervised_member(
    config: CellConfig,
    *,
    limits: Limits | None = None,
    retention: Retention | None = None,
    clock: Clock | None = None,
    grace_s: float = GRACE_S,
) -> AsyncIterator[Target]:
    """Run the member; yields the target of a store on it: it first, the other members after it.

    Entering waits until the member serves, which takes a quorum: without a limit, logging every ten
    seconds what is missing.  Leaving gives the member `grace_s` before it is killed.  Raises
    `InvalidRequest` and `Unavailable` for what waiting does not solve: no etcd program, an address in
    use, another cell at one of the addresses.
    """
    program = await asyncio.to_thread(find_program, config.program)
    _say_what_runs(config, program)
    member = _Member(config, program, limits or Limits(), retention or Retention(), clock)
    keeper: asyncio.Task[None] | None = None
    try:
        await member.start()
        keeper = asyncio.create_task(member.keep_running(), name="quoracy-etcd-member")
        keeper.add_done_callback(_tell_if_broken)
        await member.wait_serving(keeper)
        yield config.target()
    finally:
        if keeper is not None:
            keeper.cancel()
            with suppress(asyncio.CancelledError):
                await keeper
        await member.stop(grace_s)


def _tell_if_broken(keeper: asyncio.Task[None]) -> None:
    if not keeper.cancelled() and (error := keeper.exception()) is not None:
        _log.critical("etcd will not be started again: restart the node", exc_info=error)


def _say_what_runs(config: CellConfig, program: Program) -> None:
    _log.info("member %s of the cell %s: etcd %s", config.node, config.name, program.version)
    fault = known_faults(program.version)
    if fault is not None:
        _log.warning("%s", fault)
    if len(config.members) % 2 == 0:
        _log.warning(
            "a cell of %d members survives no more failures than one of %d: use an odd number",
            len(config.members),
            len(config.members) - 1,
        )
    if config.tls is None and not _is_loopback(config.own.host):
        _log.warning(
            "anybody who reaches %s or %s can read and write everything: set cell-cert, cell-key and "
            "cell-ca, or see to it that only members reach them",
            config.own.peer,
            config.own.client,
        )


def _is_loopback(host: str) -> bool:
    from quoracy.faces.common.guards import is_loopback

    return is_loopback(host)


class _Member:
    """The etcd of one node: at most one run of it at a time."""

    def __init__(
        self,
        config: CellConfig,
        program: Program,
        limits: Limits,
        retention: Retention,
        clock: Clock | None,
    ) -> None:
        self._config, self._program = config, program
        self._limits, self._retention = limits, retention
        self._clock = clock or SystemClock()
        self._log_file = LogFile(config.data_dir / "etcd.log")
        self._run: EtcdRun | None = None
        self._failed_starts = 0
        self._last_words = ""

    # -- its life

    async def start(self) -> None:
        cluster: dict[str, str] | None = None
        if not self._has_data():
            cluster = await self._find_place()
        config = self._config
        flags = etcd_flags(
            config,
            initial_cluster=cluster or {each.name: config.peer_url(each) for each in config.members},
            joining=cluster is not None,
            limits=self._limits,
            retention=self._retention,
        )
        self._run = await start_etcd(self._program.path, flags, self._log_file, self._clock)
        config.pid_file.write_text(f"{self._run.pid}\n", encoding="ascii")
        _log.info("etcd runs as pid %d and logs to %s", self._run.pid, self._log_file.path)

    async def stop(self, grace_s: float) -> None:
        if self._run is not None:
            await self._run.stop(grace_s)
            self._config.pid_file.unlink(missing_ok=True)

    async def keep_running(self) -> None:
        """Start it again whenever it has ended; until cancelled."""
        pause_s = _AGAIN_FIRST_S
        while True:
            started_at = self._clock.now()
            if self._run is not None:
                await self._hear_out(self._run)
                if self._got_far(self._clock.now() - started_at):
                    pause_s, self._failed_starts = _AGAIN_FIRST_S, 0
                else:
                    self._failed_starts += 1
                self._tell_end(self._run, pause_s)
            await self._clock.sleep(pause_s)
            pause_s = min(2 * pause_s, _AGAIN_MAX_S)
            try:
                if self._run is not None and self._log_file.has_said(_REMOVED):
                    self._set_aside()
                await self.start()
            except (QuoracyError, OSError) as error:
                _log.error("etcd cannot be started again: %s", error)
                self._run = None

    async def wait_serving(self, keeper: asyncio.Task[None]) -> None:
        """Wait until a linearizable read through our member is answered."""
        reminder = _Reminder(self._clock, quiet_s=3.0)
        async with open_remote(self._config.target([self._config.own]), timeout_s=_ASK_S) as store:
            while True:
                if keeper.done():
                    keeper.result()
                try:
                    await _prove_quorum(store)
                except QuoracyError as error:
                    reminder.say(f"waiting for the member to serve: {error}")
                else:
                    return
                if self._failed_starts >= _FAILED_STARTS_MAX:
                    raise Unavailable(f"etcd does not start. {self._last_words}")
                await self._clock.sleep(_LOOK_S)

    async def _hear_out(self, run: EtcdRun) -> None:
        """Wait for its end; log its errors meanwhile."""
        while not run.ended.done():
            bell = asyncio.ensure_future(self._clock.sleep(_LOG_LOOK_S))
            await asyncio.wait({run.ended, bell}, return_when=asyncio.FIRST_COMPLETED)
            bell.cancel()
            for said in await asyncio.to_thread(self._log_file.new_errors):
                _log.warning("etcd: %s", said)

    def _got_far(self, lasted_s: float) -> bool:
        """Whether the run that ended got as far as serving, or lasted long enough."""
        return lasted_s > _STEADY_S or self._log_file.has_said(_READY)

    def _tell_end(self, run: EtcdRun, pause_s: float) -> None:
        words = " | ".join(self._log_file.last_words()) or "nothing"
        self._last_words = f"In {self._log_file.path} it said last: {words}"
        _log.error(
            "etcd ended (%s); it is started again in %g s. %s",
            run.how_it_ended(),
            pause_s,
            self._last_words,
        )

    def _has_data(self) -> bool:
        return any((self._config.etcd_dir / "member" / "wal").glob("*.wal"))

    def _set_aside(self) -> None:
        place = self._config.etcd_dir
        new = place.with_name(f"etcd.removed-{int(self._clock.wall())}")
        place.rename(new)
        _log.warning(
            "this member was removed from the cell %s while it was away: its data was moved to %s, and "
            "it joins again as a new one",
            self._config.name,
            new,
        )

    # -- its place in the cell, when it has no data

    async def _find_place(self) -> dict[str, str] | None:
        """The members to join, or None to begin a new cell with those of the configuration."""
        reminder = _Reminder(self._clock, quiet_s=1.0)
        heard: dict[str, View] = {}
        async with peers.answering(self._config):
            while True:
                heard |= await self._ask_others()
                try:
                    cluster = await self._take_step(heard)
                except _NotYet as not_yet:
                    reminder.say(f"{self._config.node} has no data: {not_yet}")
                    await self._clock.sleep(_LOOK_S)
                else:
                    return cluster

    async def _ask_others(self) -> dict[str, View]:
        others = self._config.others
        views = await asyncio.gather(*(peers.ask(self._config, other) for other in others))
        return {other.name: view for other, view in zip(others, views, strict=True) if view is not None}

    async def _take_step(self, heard: dict[str, View]) -> dict[str, str] | None:
        """Raises `_NotYet` if it has to be tried again."""
        if all(view.is_empty for view in heard.values()):
            self._begin_if_all_are_new(heard)
            return None
        async with open_remote(self._config.target(self._config.others), timeout_s=_ASK_S) as store:
            try:
                async with asyncio.timeout(_QUORUM_S):
                    agreed = await _agreed(store)
            except (QuoracyError, TimeoutError):  # no quorum, as far as can be seen from here
                self._begin_if_all_are_new(heard)
                return None
            match next_step(self._config, heard, agreed):
                case Begin():
                    return None
                case Join(cluster):
                    return dict(cluster)
                case Wait(why):
                    raise _NotYet(why)
                case Add():
                    return await self._add(store, agreed)
                case Replace(lost):
                    await self._remove(store, lost)
                    raise _NotYet("its place is free now")

    def _begin_if_all_are_new(self, heard: dict[str, View]) -> None:
        step = next_step(self._config, heard, None)
        if isinstance(step, Wait):
            raise _NotYet(step.why)
        assert isinstance(step, Begin), "nothing else is done without a quorum"
        _log.info("the cell %s is new; %s begins it", self._config.name, self._config.node)

    async def _add(self, store: RemoteStore, agreed: Sequence[KnownMember]) -> dict[str, str]:
        url = self._config.peer_url(self._config.own)
        try:
            added = await store.member_add([url])
        except QuoracyError as error:
            raise _NotYet(f"the cell does not take it in yet: {error}") from error
        _log.warning(
            "%s joins the cell %s as a new member, %x", self._config.node, self._config.name, added.ID
        )
        # From the answer, not by asking again: the cell may need us to have a quorum from now on.
        return initial_cluster(self._config, [*agreed, KnownMember(added.ID, "", (url,))])

    async def _remove(self, store: RemoteStore, lost: KnownMember) -> None:
        await self._refuse_to_replace_the_living(lost)
        _log.warning(
            "%s has no data, but was a member of this cell before (id %x): the lost one is removed and "
            "this one takes its place; everything is copied from the other members",
            self._config.node,
            lost.id,
        )
        try:
            await store.member_remove(lost.id)
        except QuoracyError as error:
            raise _NotYet(f"the lost member cannot be removed yet: {error}") from error

    async def _refuse_to_replace_the_living(self, lost: KnownMember) -> None:
        """A node that was given another's name by mistake must not remove that one."""
        urls = [url.partition("://")[2] for url in lost.client_urls]
        target = self._config.target()
        addresses = parse_url(f"etcd://{','.join(urls)}").addresses
        async with open_remote(Target(addresses, tls=target.tls), timeout_s=_ASK_S) as there:
            for found in await there.endpoint_status():
                header = None if found.status is None else found.status.header
                if header is not None and header.member_id == lost.id:
                    raise InvalidRequest(
                        f"the member {lost.name} of the cell {self._config.name} is running at "
                        f"{found.address}. Two of one name cannot be: is --node right here?"
                    )


class _NotYet(Exception):
    """Why a member without data cannot start yet."""


class _Reminder:
    """Logs what is waited for: when it changes, and every ten seconds, after a quiet start."""

    def __init__(self, clock: Clock, *, quiet_s: float) -> None:
        self._clock = clock
        self._said: str | None = None
        self._said_at = 0.0
        self._quiet_until = clock.now() + quiet_s

    def say(self, what: str) -> None:
        now = self._clock.now()
        if now < self._quiet_until or (what == self._said and now - self._said_at < _REMIND_S):
            return
        self._said, self._said_at = what, now
        _log.info("%s", what)


async def _prove_quorum(store: RemoteStore) -> None:
    """A linearizable read is answered only if a majority agrees on the leader."""
    await store.range(b"\x00", count_only=True)


async def _agreed(store: RemoteStore) -> list[KnownMember]:
    await _prove_quorum(store)
    return [
        KnownMember(each.ID, each.name, tuple(each.peerURLs), tuple(each.clientURLs))
        for each in await store.member_list(linearizable=True)
    ]
