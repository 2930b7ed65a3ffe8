"""The health of the members of the cluster, asked for now and then, so that it is known at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from quoracy.errors import QuoracyError
from quoracy.remote.etcd_versions import known_faults
from quoracy.remote.maintenance import EndpointStatus
from quoracy.remote.store import RemoteStore, alarms_of
from quoracy.remote.urls import Address
from quoracy.store.model import Alarm, MemberHealth
from quoracy.wire.etcd.maintenance import StatusResponse

__all__ = ["Members", "leader_of"]

_log = logging.getLogger(__name__)
_log.addHandler(logging.NullHandler())

ASK_EVERY_S = 5.0


class Members:
    """What this node knows about the members, by the addresses that it was given."""

    def __init__(self, remote: RemoteStore, near: RemoteStore) -> None:
        """`remote` is meant to reach the leader; through `near`, changes arrive here."""
        self._remote, self._near = remote, near
        self._task: asyncio.Task[None] | None = None
        self._asked = asyncio.Event()
        self._names: dict[int, str] = {}
        self._known: dict[str, MemberHealth] = {}
        self._ids: dict[str, int] = {}
        self._faults_named: set[str] = set()
        self.cluster_id = 0
        self.term = 0
        self.leader = ""
        self.version = ""
        self.size_bytes = 0
        self.size_bytes_max = 0
        self.alarms: frozenset[Alarm] = frozenset()

    async def start(self) -> None:
        await self._ask_if_possible()
        self._task = asyncio.create_task(self._run(), name="quoracy-members")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def look_again(self) -> None:
        """Something changed: ask before it is time to."""
        self._asked.set()

    @property
    def all(self) -> tuple[MemberHealth, ...]:
        return tuple(self._known.values())

    @property
    def role(self) -> str:
        """What the member is that this node hears of changes from."""
        address = self._near.current_address
        known = None if address is None else self._known.get(str(address))
        if known is None or not known.version:
            return "unknown"
        return "leader" if known.is_leader else "follower"

    @property
    def warnings(self) -> tuple[str, ...]:
        faults = {
            version: fault
            for version in sorted({member.version for member in self.all if member.version})
            if (fault := known_faults(version)) is not None
        }
        return tuple(faults.values())

    async def _run(self) -> None:
        while True:
            self._asked.clear()
            try:
                async with asyncio.timeout(ASK_EVERY_S):
                    await self._asked.wait()
            except TimeoutError:
                pass  # it is time
            await self._ask_if_possible()

    async def _ask_if_possible(self) -> None:
        try:
            await self._ask()
        except QuoracyError as error:
            _log.info("how the members are doing is not known: %s", error)

    async def _ask(self) -> None:
        found = await self._remote.endpoint_status()
        for each in found:
            self._note(each)
        answered = [each.status for each in found if each.status is not None]
        if not answered:
            self.leader = ""
            return
        self._note_cluster(answered)
        if not set(self._ids.values()) <= self._names.keys():
            self._names = {member.ID: member.name for member in await self._remote.member_list()}
            for each in found:
                self._note(each)
            self._note_cluster(answered)
        self._ask_the_leader(found)
        for warning in self.warnings:
            if warning not in self._faults_named:
                self._faults_named.add(warning)
                _log.warning("%s", warning)

    def _ask_the_leader(self, found: list[EndpointStatus]) -> None:
        """Any other member would have to pass requests on to it, at the cluster's cost."""
        leader = leader_of(found)
        if leader is not None and self._remote.current_address != leader:
            self._remote.prefer(leader)

    def _note(self, found: EndpointStatus) -> None:
        address, status = str(found.address), found.status
        before = self._known.get(address)
        if status is None or status.header is None:
            name = address if before is None else before.name
            version = "" if before is None else before.version
            self._known[address] = MemberHealth(name, address, version, error=str(found.error))
            return
        member = status.header.member_id
        self.cluster_id = status.header.cluster_id
        self._ids[address] = member
        self._known[address] = MemberHealth(
            self._names.get(member, address),
            address,
            status.version,
            is_leader=status.leader == member,
            revision=status.header.revision,
            size_bytes=status.dbSizeInUse or status.dbSize,
        )

    def _note_cluster(self, answered: list[StatusResponse]) -> None:
        newest = max(answered, key=lambda status: (status.raftTerm, status.raftIndex))
        self.leader = self._names.get(newest.leader, "") if newest.leader else ""
        self.term = newest.raftTerm
        self.note_status(newest)
        self.alarms = alarms_of([error for status in answered for error in status.errors])

    def note_status(self, status: StatusResponse) -> None:
        """What one member says of itself, taken for all."""
        self.version = status.version
        self.size_bytes = status.dbSizeInUse or status.dbSize
        self.size_bytes_max = status.dbSizeQuota
        self.alarms = alarms_of(status.errors)


def leader_of(found: Iterable[EndpointStatus]) -> Address | None:
    """Where the leader is.  One that stood still may say so too, and has an older term."""
    leader, term = None, -1
    for each in found:
        status = each.status
        if status is None or status.header is None or status.leader != status.header.member_id:
            continue
        if status.raftTerm > term:
            leader, term = each.address, status.raftTerm
    return leader
