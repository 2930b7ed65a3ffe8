"""etcd's Maintenance service, and compaction.

A node keeps no data of its own: what is to be done to data is refused there, with the addresses of the
members to have it done by (`Standing`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from quoracy.errors import Unavailable
from quoracy.faces.etcd.errors import EtcdFault
from quoracy.faces.etcd.methods import Method, Send, Streaming, awaited
from quoracy.faces.etcd.services.member import ETCD_VERSION, Headers, Identity, Standing
from quoracy.store.api import Store
from quoracy.store.model import Alarm, ClusterHealth
from quoracy.wire.etcd.maintenance import (
    AlarmAction,
    AlarmMember,
    AlarmRequest,
    AlarmResponse,
    AlarmType,
    DefragmentRequest,
    DefragmentResponse,
    DowngradeAction,
    DowngradeRequest,
    DowngradeResponse,
    HashKVRequest,
    HashKVResponse,
    HashRequest,
    HashResponse,
    MoveLeaderRequest,
    MoveLeaderResponse,
    SnapshotRequest,
    SnapshotResponse,
    StatusRequest,
    StatusResponse,
)
from quoracy.wire.etcd.rpc import CompactionRequest, CompactionResponse
from quoracy.wire.grpc import GrpcError, StatusCode

__all__ = ["MaintenanceService", "Snapshot"]


# Writes a backup of the store to a path that does not exist yet.
Snapshot = Callable[[Path], Awaitable[object]]

_CHUNK_BYTES = 64 * 1024

_ALARM_TYPES = {
    Alarm.NO_SPACE: AlarmType.NOSPACE,
    # The nearest etcd has: like it, this one stops writes for good and wants a person.
    Alarm.STORAGE_FAILED: AlarmType.CORRUPT,
}


class MaintenanceService:
    def __init__(
        self,
        store: Store,
        headers: Headers,
        identity: Identity,
        standing: Standing,
        *,
        snapshot: Snapshot | None,
    ) -> None:
        self._store = store
        self._headers = headers
        self._identity = identity
        self._standing = standing
        self._write_snapshot = snapshot

    def methods(self) -> list[Method]:
        service, route = "/etcdserverpb.Maintenance/", "/v3/maintenance/"
        return [
            awaited(service + "Alarm", AlarmRequest, AlarmResponse, self.alarm, (route + "alarm",)),
            awaited(
                service + "Status", StatusRequest, StatusResponse, self.status, (route + "status",)
            ),
            awaited(
                service + "Defragment",
                DefragmentRequest,
                DefragmentResponse,
                self.defragment,
                (route + "defragment",),
            ),
            awaited(service + "Hash", HashRequest, HashResponse, self.hash, (route + "hash",)),
            awaited(
                service + "HashKV", HashKVRequest, HashKVResponse, self.hash_kv, (route + "hashkv",)
            ),
            Streaming(
                service + "Snapshot",
                SnapshotRequest,
                SnapshotResponse,
                self.snapshot,
                client_streams=False,
                routes=(route + "snapshot",),
            ),
            awaited(
                service + "MoveLeader",
                MoveLeaderRequest,
                MoveLeaderResponse,
                self.move_leader,
                (route + "transfer-leadership",),
            ),
            awaited(
                service + "Downgrade",
                DowngradeRequest,
                DowngradeResponse,
                self.downgrade,
                (route + "downgrade",),
            ),
            # (Of the service KV, which is compiled and has no coroutines.)
            awaited(
                "/etcdserverpb.KV/Compact",
                CompactionRequest,
                CompactionResponse,
                self.compact,
                ("/v3/kv/compaction",),
            ),
        ]

    async def compact(self, request: CompactionRequest) -> CompactionResponse:
        """`physical` needs nothing more: what was compacted is not kept anywhere a client could see."""
        if request.revision < 1:
            raise EtcdFault.compacted()
        await self._store.compact(request.revision)
        return CompactionResponse(header=await self._headers.now())

    async def status(self, _: StatusRequest) -> StatusResponse:
        """A revision stands in for raft's index: it grows with each write, and all of it is applied.

        On a cell the index is the cluster's revision as far as it is known, and what is applied is
        what this node has: the difference is its lag.
        """
        cluster = self._standing.health
        try:
            status = await self._store.status()
        except Unavailable:
            if cluster is None:
                raise
            return self._status_without_store(cluster)
        member_id = self._identity.member_id
        lag, is_learner = (0, False) if cluster is None else (cluster.lag, cluster.role == "learner")
        return StatusResponse(
            header=self._headers.at(status.revision),
            version=ETCD_VERSION,
            dbSize=status.size_bytes,
            dbSizeInUse=status.size_bytes,
            dbSizeQuota=status.size_bytes_max,
            leader=self._standing.leader_id,
            raftIndex=status.revision + lag,
            raftAppliedIndex=status.revision,
            raftTerm=self._term(cluster),
            # The text is that of etcd's alarm message, its last space included.
            errors=[
                *self._standing.complaints,
                *(f"memberID:{member_id} alarm:{alarm.name} " for alarm in _alarm_types(status.alarms)),
            ],
            isLearner=is_learner,
        )

    def _term(self, cluster: ClusterHealth | None) -> int:
        return self._identity.raft_term if cluster is None or not cluster.term else cluster.term

    def _status_without_store(self, cluster: ClusterHealth) -> StatusResponse:
        """What can be said without the cluster: a member of etcd's answers this in any state, too."""
        return StatusResponse(
            header=self._headers.at(cluster.revision),
            version=ETCD_VERSION,
            leader=self._standing.leader_id,
            raftIndex=cluster.revision + cluster.lag,
            raftAppliedIndex=cluster.revision,
            raftTerm=self._term(cluster),
            errors=self._standing.complaints,
        )

    async def alarm(self, request: AlarmRequest) -> AlarmResponse:
        """Alarms show how the store is, so nobody but the store raises or clears one.

        Differs from etcd: DEACTIVATE answers with the alarm as etcd does if it is up, and changes
        nothing: writes resume by themselves once there is room.  ACTIVATE raises nothing.  On a cell
        they do not resume until the cluster's own alarm is disarmed, so there DEACTIVATE is refused.
        """
        status = await self._store.status()
        concerned = []
        for alarm in _alarm_types(status.alarms):
            match request.action:
                case AlarmAction.GET:
                    is_concerned = request.alarm in (AlarmType.NONE, alarm)
                case AlarmAction.DEACTIVATE:
                    is_concerned = request.alarm == alarm
                case _:
                    is_concerned = False
            if is_concerned and request.action == AlarmAction.DEACTIVATE:
                self._standing.refuse_if_on_cluster("disarming an alarm", "alarm disarm")
            if is_concerned:
                concerned.append(AlarmMember(memberID=self._identity.member_id, alarm=alarm))
        return AlarmResponse(header=self._headers.at(status.revision), alarms=concerned)

    async def defragment(self, _: DefragmentRequest) -> DefragmentResponse:
        """Nothing to do: the journal gives the space of what was compacted back by itself.

        Answered like etcd's, with no header, so that scripts that defragment every member go on.  On a
        cell there is something to do, elsewhere.
        """
        self._standing.refuse_if_on_cluster("defragmentation", "defrag")
        return DefragmentResponse()

    async def hash(self, _: HashRequest) -> HashResponse:
        state = await self._store.hash()
        return HashResponse(header=self._headers.at(state.revision), hash=_hash32(state.digest))

    async def hash_kv(self, request: HashKVRequest) -> HashKVResponse:
        """The digest of all keys at a revision.  Only servers of one kind compare: etcd's differs."""
        state = await self._store.hash(at=request.revision if request.revision > 0 else None)
        return HashKVResponse(
            header=await self._headers.now(),
            hash=_hash32(state.digest),
            compact_revision=state.compact_revision,
            hash_revision=state.revision,
        )

    async def snapshot(
        self, requests: AsyncIterator[SnapshotRequest], send: Send[SnapshotResponse]
    ) -> None:
        """Quoracy's own backup, which `quoracy restore` takes; then its SHA-256, as etcd sends one.

        Differs from etcd: the file is no etcd database, and etcd cannot be started from it.
        """
        await anext(aiter(requests))
        self._standing.refuse_if_on_cluster("a snapshot", "snapshot save FILE")
        if self._write_snapshot is None:
            raise GrpcError(
                StatusCode.UNIMPLEMENTED,
                "this server's store keeps no data of its own to take a snapshot of",
            )
        # Imported here: they are large, and most servers never need them.
        import shutil
        import tempfile

        directory = await asyncio.to_thread(tempfile.mkdtemp, prefix="quoracy-snapshot-")
        try:
            path = Path(directory, "snapshot.db")
            await self._write_snapshot(path)
            await _send_file(path, send)
        finally:
            await asyncio.to_thread(shutil.rmtree, directory)

    async def move_leader(self, request: MoveLeaderRequest) -> MoveLeaderResponse:
        """Leadership can be handed to the leader itself, which is no change, and to nobody else."""
        if self._standing.leader_id != self._identity.member_id:
            raise GrpcError(StatusCode.FAILED_PRECONDITION, "etcdserver: not leader")
        if request.targetID != self._identity.member_id:
            raise GrpcError(StatusCode.FAILED_PRECONDITION, "etcdserver: bad leader transferee")
        return MoveLeaderResponse()

    async def downgrade(self, request: DowngradeRequest) -> DowngradeResponse:
        match request.action:
            case DowngradeAction.CANCEL:
                raise GrpcError(StatusCode.FAILED_PRECONDITION, "etcdserver: no inflight downgrade job")
            case _:
                raise GrpcError(
                    StatusCode.UNIMPLEMENTED,
                    "Quoracy's data has no etcd version to downgrade: install another Quoracy instead",
                )


async def _send_file(path: Path, send: Send[SnapshotResponse]) -> None:
    import hashlib  # brings OpenSSL, see store/digest.py

    remaining = (await asyncio.to_thread(path.stat)).st_size
    digest = hashlib.sha256()
    file = await asyncio.to_thread(path.open, "rb")
    try:
        while remaining:
            chunk = await asyncio.to_thread(file.read, _CHUNK_BYTES)
            if not chunk:
                raise GrpcError(
                    StatusCode.DATA_LOSS, f"the snapshot lost its last {remaining} bytes. Try again."
                )
            digest.update(chunk)
            remaining -= len(chunk)
            await send(SnapshotResponse(remaining_bytes=remaining, blob=chunk, version=ETCD_VERSION))
    finally:
        file.close()
    await send(SnapshotResponse(blob=digest.digest(), version=ETCD_VERSION))


def _alarm_types(alarms: frozenset[Alarm]) -> list[AlarmType]:
    return sorted(_ALARM_TYPES[alarm] for alarm in alarms)


def _hash32(digest: str) -> int:
    return int(digest[:8], 16)
