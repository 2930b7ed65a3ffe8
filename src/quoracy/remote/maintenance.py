"""What servers offer beyond the Store contract: members, status, the health of a cell, snapshots."""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import msgspec

from quoracy.errors import DataError, QuoracyError, Unavailable
from quoracy.remote.calls import StreamCall
from quoracy.remote.dial import Channel
from quoracy.remote.endpoints import Dial
from quoracy.remote.errors import CallLost, error_of
from quoracy.remote.requests import Kind, Requests
from quoracy.remote.urls import Address
from quoracy.store.model import ClusterHealth, MemberHealth, Revision
from quoracy.wire.etcd.maintenance import (
    Member,
    MemberAddRequest,
    MemberAddResponse,
    MemberListRequest,
    MemberListResponse,
    MemberRemoveRequest,
    SnapshotRequest,
    SnapshotResponse,
    StatusRequest,
    StatusResponse,
)
from quoracy.wire.grpc import GrpcError, StatusCode
from quoracy.wire.quoracy import CLUSTER_HEALTH, ClusterHealthRequest, ClusterHealthResponse

__all__ = ["CellHealth", "EndpointStatus", "Maintenance"]

_STATUS = "/etcdserverpb.Maintenance/Status"
_SNAPSHOT = "/etcdserverpb.Maintenance/Snapshot"
_MEMBERS = "/etcdserverpb.Cluster/MemberList"
_MEMBER_ADD = "/etcdserverpb.Cluster/MemberAdd"
_MEMBER_REMOVE = "/etcdserverpb.Cluster/MemberRemove"

# What is gathered before it goes to the disk, off the event loop.
_WRITE_BYTES = 1024 * 1024
# etcd pads its data to pages of 512 bytes and puts a digest of 32 behind them.
_PAGE_BYTES = 512
_DIGEST_BYTES = hashlib.sha256().digest_size


class CellHealth(msgspec.Struct, frozen=True):
    """How a Quoracy node sees the cluster it stands on; `engine` is empty if it could not say which."""

    engine: str
    health: ClusterHealth


class EndpointStatus(msgspec.Struct, frozen=True):
    """One server: its status, or why it cannot be asked.

    `cell` is there if it was asked for and the server is a Quoracy node on a cluster.
    """

    address: Address
    status: StatusResponse | None
    error: QuoracyError | None = None
    cell: CellHealth | None = None


class Maintenance:
    """Questions to servers rather than to the store they serve."""

    def __init__(self, requests: Requests, *, dial: Dial) -> None:
        self._requests, self._dial = requests, dial

    async def status(self) -> StatusResponse:
        """How the server that is connected to is doing."""
        return StatusResponse.decode(await self._ask(_STATUS, StatusRequest().encode(), "status"))

    async def server_version(self, channel: Channel) -> str:
        """The version of the server behind one connection."""
        if channel.server_version is None:
            channel.server_version = (await self._status_of(channel)).version
        return channel.server_version

    async def endpoint_status(self, *, with_cell: bool = False) -> list[EndpointStatus]:
        """How each of the servers is doing; all are asked at once, each on a connection of its own.

        `with_cell` asks each as well how the cluster is that it stands on, if it stands on one.
        """
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._endpoint(address, with_cell))
                for address in self._requests.endpoints.addresses
            ]
        return [task.result() for task in tasks]

    async def member_list(self, *, linearizable: bool = False) -> tuple[Member, ...]:
        """The servers of the cluster, as they know each other.

        `linearizable` is for etcd 3.5 and newer; an older one answers with what it knows itself.
        """
        request = MemberListRequest(linearizable=linearizable).encode()
        answer = await self._ask(_MEMBERS, request, "list of members")
        return tuple(MemberListResponse.decode(answer).members)

    async def member_add(self, peer_urls: Sequence[str]) -> Member:
        """Add a server to the cluster; it will listen at `peer_urls`, and has not started yet.

        Raises `Unavailable` or `Rejected` while the cluster is not healthy enough for that.
        """
        request = MemberAddRequest(peerURLs=tuple(peer_urls)).encode()
        what = f"member_add({', '.join(peer_urls)})"
        added = MemberAddResponse.decode(await self._ask(_MEMBER_ADD, request, what, Kind.WRITE)).member
        assert added is not None
        return added

    async def member_remove(self, member_id: int) -> None:
        """Take a server out of the cluster, for good: its id never comes back.

        Raises `Unavailable` or `Rejected` while the others could not do without it.
        """
        request = MemberRemoveRequest(ID=member_id).encode()
        await self._ask(_MEMBER_REMOVE, request, f"member_remove({member_id:x})", Kind.WRITE)

    async def snapshot(
        self, path: str | os.PathLike[str], *, progress: Callable[[int], None] | None = None
    ) -> int:
        """Copy the server's data into a new file; the bytes it has.

        `progress` is called with the number of bytes received, each time some came.
        The file has its name only when it is complete and on disk.  Raises `DataError` if it exists
        already or cannot be written, or if the copy is damaged.
        """
        target = Path(path)
        if await asyncio.to_thread(target.exists):
            raise DataError(f"{target} exists already. Give another name, or remove it first.")
        partial = target.with_name(target.name + ".part")
        channel = await self._requests.any_channel("snapshot")
        stream = channel.stream(_SNAPSHOT, token=self._requests.authentication.token)
        writer = _SnapshotWriter(partial)
        received = 0
        try:
            stream.send_soon(SnapshotRequest().encode())
            stream.finish_sending()
            async for piece in _pieces(stream):
                await writer.write(piece.blob)
                received += len(piece.blob)
                if progress is not None:
                    progress(received)
            return await writer.finish(target)
        except GrpcError as error:
            raise error_of(error, "snapshot", write=False) from error
        except CallLost as error:
            raise Unavailable(f"snapshot: {error}. Nothing was kept of it; try again.") from error
        except OSError as error:
            raise DataError(f"{partial} cannot be written: {error}") from error
        finally:
            stream.cancel()
            await writer.close()

    async def _ask(self, path: str, payload: bytes, what: str, kind: Kind = Kind.READ) -> bytes:
        try:
            return await self._requests.ask(path, payload, kind, what)
        except GrpcError as error:
            raise error_of(error, what, write=kind is not Kind.READ) from error

    async def _status_of(self, channel: Channel) -> StatusResponse:
        try:
            answer = await self._ask_on(channel, _STATUS, StatusRequest().encode())
        except GrpcError as error:
            raise error_of(error, "status", write=False) from error
        return StatusResponse.decode(answer)

    async def _cell_of(self, channel: Channel) -> CellHealth | None:
        """None: the server stands on no cluster, or is an etcd."""
        try:
            answer = await self._ask_on(channel, CLUSTER_HEALTH, ClusterHealthRequest().encode())
        except GrpcError as error:
            if error.code is StatusCode.UNIMPLEMENTED:
                return None
            raise error_of(error, "health of the cluster", write=False) from error
        return _cell_health(ClusterHealthResponse.decode(answer))

    async def _ask_on(self, channel: Channel, path: str, payload: bytes) -> bytes:
        timeout_s, token = self._requests.timeout_s, self._requests.authentication.token
        deadline = asyncio.get_running_loop().time() + timeout_s
        return await channel.unary(path, payload, timeout_s=timeout_s, deadline=deadline, token=token)

    async def _endpoint(self, address: Address, with_cell: bool) -> EndpointStatus:
        try:
            channel = await self._dial(address)
            try:
                status = await self._status_of(channel)
                cell = await self._cell_of(channel) if with_cell else None
                return EndpointStatus(address, status, cell=cell)
            finally:
                await channel.close()
        except QuoracyError as error:
            return EndpointStatus(address, None, error)


async def _pieces(stream: StreamCall) -> AsyncIterator[SnapshotResponse]:
    while True:
        try:
            message = await stream.receive()
        except GrpcError as end:
            if end.code is StatusCode.OK:
                return
            raise
        yield SnapshotResponse.decode(message)


def _cell_health(said: ClusterHealthResponse) -> CellHealth:
    health = ClusterHealth(
        is_serving=said.is_serving,
        reason=said.reason,
        stale_s=said.stale_ms / 1000,
        revision=Revision(said.header.revision if said.header is not None else 0),
        lag=said.lag,
        leader=said.leader,
        role=said.role,
        members=tuple(
            MemberHealth(
                member.name,
                member.address,
                member.version,
                is_leader=member.is_leader,
                revision=member.revision,
                size_bytes=member.size_bytes,
                error=member.error,
            )
            for member in said.members
        ),
        warnings=tuple(said.warnings),
    )
    return CellHealth(said.engine, health)


class _SnapshotWriter:
    """A file that grows off the event loop, and gets its name when it is whole.

    A thread goes on when its caller is cancelled: the lock keeps it from a file that was closed.
    """

    def __init__(self, partial: Path) -> None:
        self._partial = partial
        self._lock = threading.Lock()
        self._closed = False
        self._file: int | None = None
        self._gathered = bytearray()
        self._digest = hashlib.sha256()
        self._tail = b""  # the last bytes may be a digest of all before them
        self._size = 0

    async def write(self, blob: bytes) -> None:
        self._gathered += blob
        if len(self._gathered) >= _WRITE_BYTES:
            await asyncio.to_thread(self._flush)

    async def finish(self, target: Path) -> int:
        return await asyncio.to_thread(self._finish, target)

    async def close(self) -> None:
        await asyncio.to_thread(self._close)

    def _flush(self) -> None:
        with self._lock:
            if not self._closed:
                self._append()

    def _append(self) -> None:
        if self._file is None:
            self._file = os.open(self._partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        data = bytes(self._gathered)
        self._gathered.clear()
        self._size += len(data)
        known = self._tail + data
        self._digest.update(known[:-_DIGEST_BYTES])
        self._tail = known[-_DIGEST_BYTES:]
        view = memoryview(data)
        while view:
            view = view[os.write(self._file, view) :]

    def _finish(self, target: Path) -> int:
        with self._lock:
            return 0 if self._closed else self._finish_open(target)

    def _finish_open(self, target: Path) -> int:
        self._append()
        assert self._file is not None
        has_digest = self._size % _PAGE_BYTES == _DIGEST_BYTES
        if has_digest and self._digest.digest() != self._tail:
            raise DataError("the snapshot was damaged on its way: its digest is wrong. Try again.")
        os.fsync(self._file)
        os.link(self._partial, target)  # which fails if somebody made it meanwhile
        return self._size

    def _close(self) -> None:
        with self._lock:
            self._closed = True
            if self._file is not None:
                os.close(self._file)
                self._file = None
                self._partial.unlink(missing_ok=True)
