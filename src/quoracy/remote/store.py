"""`RemoteStore`: the Store protocol over the network, against Quoracy's own server or a real etcd.

What the network adds to the contract
    * A request has `timeout_s`.  A read that is not answered by then raises `Unavailable`; a write that
      may have left this process raises `Indeterminate`, and is never sent a second time.
    * Reads are linearizable unless they ask for `serializable`.
    * Limits are the server's: what is too large is refused by it, and its limit is not told.  Who knows
      them can have them checked here, before anything is sent.

What cannot be known from here: how many watchers others have (`status` counts our own), a quota that
the server does not tell (0), and a compaction to revision 1 that somebody else asked for (it takes
nothing away).
"""

from __future__ import annotations

import dataclasses
import math
import random
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Unpack

from quoracy.clock import Clock, SystemClock
from quoracy.errors import (
    Compacted,
    InvalidRequest,
    LeaseNotFound,
    QuoracyError,
    Rejected,
    Unsupported,
)
from quoracy.remote.authentication import SigningIn
from quoracy.remote.dial import Channel, ChannelOptions, connect
from quoracy.remote.endpoints import Endpoints
from quoracy.remote.error_explanation import Explaining
from quoracy.remote.error_mapping import Reason, error_of, reason_of
from quoracy.remote.fast_messages import read_put, read_range, read_txn
from quoracy.remote.lease_keeper import LeaseKeeper
from quoracy.remote.maintenance import Upkeep
from quoracy.remote.queue_waits import QueueWaits
from quoracy.remote.requests import Asking, Kind
from quoracy.remote.submission import Beginning
from quoracy.remote.tls import make_context
from quoracy.remote.translate import (
    delete_request,
    delete_result,
    grant_result,
    lease_status,
    put_payload,
    range_request,
    revision_of,
    ttl_seconds,
    txn_payload,
)
from quoracy.remote.urls import Address, Target
from quoracy.remote.watch import RemoteWatch
from quoracy.remote.watch_hub import WatchHub
from quoracy.store.api import PutOptions, RangeOptions, WatchOptions
from quoracy.store.contention import wait_by_watching
from quoracy.store.digest import Digest
from quoracy.store.legacy import LegacyStore
from quoracy.store.model import (
    Alarm,
    Delete,
    DeleteResult,
    KeyRange,
    Keys,
    LeaseGrant,
    LeaseId,
    LeaseStatus,
    Op,
    Put,
    PutResult,
    Range,
    RangeResult,
    Revision,
    StateHash,
    StoreStatus,
    Txn,
    TxnResult,
)
from quoracy.store.rules import (
    Limits,
    check_delete,
    check_keys,
    check_lease_id,
    check_lease_ttl,
    check_put,
    check_range,
    check_txn,
    writes,
)
from quoracy.wire.etcd import rpc
from quoracy.wire.grpc import GrpcError, StatusCode
from quoracy.wire.quoracy import RevisionAtRequest, RevisionAtResponse

__all__ = ["NO_LIMITS", "TIMEOUT_S", "RemoteStore", "alarms_of", "open_remote"]

TIMEOUT_S = 5.0

_RANGE = "/etcdserverpb.KV/Range"
_PUT = "/etcdserverpb.KV/Put"
_DELETE = "/etcdserverpb.KV/DeleteRange"
_TXN = "/etcdserverpb.KV/Txn"
_COMPACT = "/etcdserverpb.KV/Compact"
_GRANT = "/etcdserverpb.Lease/LeaseGrant"
_REVOKE = "/etcdserverpb.Lease/LeaseRevoke"
_TIME_TO_LIVE = "/etcdserverpb.Lease/LeaseTimeToLive"
_LEASES = "/etcdserverpb.Lease/LeaseLeases"
_REVISION_AT = "/quoracy.v1.History/RevisionAt"
_AGE_MS_MAX = 2**62

# Whatever limits there are, they are the server's.  The longest time to live is part of the protocol.
_ANY = 2**62
NO_LIMITS = Limits(request_bytes_max=_ANY, key_bytes_max=_ANY, txn_ops_max=_ANY, lease_ttl_min_s=0.0)
_HASH_PAGE_KEYS = 500


@asynccontextmanager
async def open_remote(
    target: Target,
    *,
    timeout_s: float | None = None,
    clock: Clock | None = None,
    limits: Limits | None = None,
    options: ChannelOptions | None = None,
) -> AsyncIterator[RemoteStore]:
    """The store on the servers of `target`.  The first request connects; leaving closes everything.

    `limits` are the server's, if they are known: what breaks them is refused before it is sent.  Of
    them, `watch_buffer_...` is about this process: what is kept for a watcher that does not read.
    """
    timeout_s = TIMEOUT_S if timeout_s is None else timeout_s
    if not timeout_s > 0:
        raise InvalidRequest(f"timeout_s is {timeout_s}. Give a positive number of seconds.")
    store = RemoteStore(
        target,
        timeout_s=timeout_s,
        clock=clock or SystemClock(),
        rng=random.Random(),
        limits=limits or NO_LIMITS,
        options=options or ChannelOptions(),
    )
    try:
        yield store
    finally:
        await store.close()


class RemoteStore(LegacyStore):
    """A `Store` on servers.  Made by `open_remote`; lives on the loop it was made on."""

    def __init__(
        self,
        target: Target,
        *,
        timeout_s: float,
        clock: Clock,
        rng: random.Random,
        limits: Limits,
        options: ChannelOptions,
    ) -> None:
        self.target = target
        self._limits = limits
        tls = None if target.tls is None else make_context(target.tls)
        self._dialling = _Dialling(target, tls, options)
        endpoints = Endpoints(target.addresses, dial=self._dialling.dial, rng=rng, clock=clock)
        signing_in = SigningIn(target.user, target.password, timeout_s=timeout_s)
        self._asking = Asking(endpoints, signing_in, timeout_s=timeout_s, rng=rng)
        beginning = Beginning(self._asking)
        self.begin, self.prepared = beginning.begin, beginning.prepared
        self.delete_maker = beginning.delete_maker
        queue_waits = QueueWaits(self._asking)
        self._queue_waits, self.begin_wait = queue_waits, queue_waits.begin_wait
        # How a server is doing it can tell without a leader, too.
        asked_alone = dataclasses.replace(options, require_leader=False)
        self._upkeep = Upkeep(self._asking, dial=_Dialling(target, tls, asked_alone).dial)
        self._explaining = Explaining(self._asking, self._upkeep)
        self._keeper = LeaseKeeper()
        self._watches = WatchHub(
            self._asking,
            newest_revision=self._newest_revision,
            server_version=self._upkeep.server_version,
            buffer_events_max=limits.watch_buffer_events_max,
            buffer_bytes_max=limits.watch_buffer_bytes_max,
            rng=rng,
        )
        self.member_list = self._upkeep.member_list
        self.member_add = self._upkeep.member_add
        self.member_remove = self._upkeep.member_remove
        self.endpoint_status = self._upkeep.endpoint_status
        self.server_status = self._upkeep.status
        self.snapshot = self._upkeep.snapshot

    async def close(self) -> None:
        """End every watch and every request with `StoreClosed`, and hang up.

        A write that was sent and not answered yet raises `Indeterminate`.
        """
        await self._watches.close()
        await self._keeper.close()
        await self._asking.close()

    # -- keys ---------------------------------------------------------------------------------

    async def range(self, keys: Keys, **options: Unpack[RangeOptions]) -> RangeResult:
        op = Range(keys, **options)
        check_range(op, self._limits)
        answer = await self._ask(_RANGE, range_request(op).encode(), Kind.READ, op)
        return read_range(answer)

    async def put(self, key: bytes, value: bytes = b"", **options: Unpack[PutOptions]) -> PutResult:
        op = Put(key, value, **options)
        check_put(op, self._limits)
        answer = await self._ask(_PUT, put_payload(op), Kind.WRITE, op)
        return read_put(answer)

    async def delete(self, keys: Keys, *, prev_kv: bool = False) -> DeleteResult:
        op = Delete(keys, prev_kv)
        check_delete(op, self._limits)
        answer = await self._ask(_DELETE, delete_request(op).encode(), Kind.WRITE, op)
        return delete_result(rpc.DeleteRangeResponse.decode(answer))

    async def txn(self, txn: Txn) -> TxnResult:
        check_txn(txn, self._limits)
        kind = Kind.WRITE if writes(txn.then) or writes(txn.otherwise) else Kind.READ
        answer = await self._ask(_TXN, txn_payload(txn), kind, txn)
        return read_txn(answer)

    async def wait_first(self, name: bytes, key: bytes, token: int) -> Revision | None:
        try:
            return await self._queue_waits.wait_first(name, key, token)
        except Unsupported:
            return await wait_by_watching(self, name, key, token)

    async def compact(self, at: int) -> None:
        if at < 1:
            raise InvalidRequest(f"at is {at}; revisions start at 1.")
        request = rpc.CompactionRequest(revision=at)
        try:
            await self._asking.ask(_COMPACT, request.encode(), Kind.WRITE, f"compaction to {at}")
        except GrpcError as error:
            raise await self._explaining.revision_error(
                error, [at], f"compaction to {at}", write=True, at_least=at
            ) from error
        self._explaining.note_compaction(at)

    # -- leases -------------------------------------------------------------------------------

    async def grant(self, ttl_s: float, *, id: LeaseId | None = None) -> LeaseGrant:
        if id is not None:
            check_lease_id(id)
        ttl = ttl_seconds(check_lease_ttl(ttl_s, self._limits))
        request = rpc.LeaseGrantRequest(TTL=ttl, ID=id or 0)
        what = "grant of a lease" if id is None else f"grant of lease {id:x}"
        answer = rpc.LeaseGrantResponse.decode(
            await self._ask_of_lease(_GRANT, request.encode(), Kind.WRITE, id or 0, what)
        )
        if answer.error:
            raise Rejected(f"{what}: the server refused it: {answer.error}.")
        return grant_result(answer.ID, answer.TTL)

    async def keep_alive(self, lease: int, *, timeout_s: float | None = None) -> LeaseGrant:
        """`timeout_s`: how late it may be sent again at most, instead of the store's."""
        what = f"keep-alive of lease {lease:x}"

        async def once(channel: Channel, token: str | None, deadline: float) -> int:
            return await self._keeper.keep(lease, channel, token, deadline)

        try:
            ttl = await self._asking.ask_by(once, Kind.RENEWAL, what, timeout_s=timeout_s)
        except GrpcError as error:
            raise await self._explaining.lease_error(error, lease, what, write=True) from error
        if ttl <= 0:
            raise LeaseNotFound(lease)
        return grant_result(lease, ttl)

    async def revoke(self, lease: int) -> Revision:
        request = rpc.LeaseRevokeRequest(ID=lease)
        what = f"revocation of lease {lease:x}"
        answer = await self._ask_of_lease(_REVOKE, request.encode(), Kind.WRITE, lease, what)
        return revision_of(rpc.LeaseRevokeResponse.decode(answer).header)

    async def time_to_live(self, lease: int, *, keys: bool = False) -> LeaseStatus:
        request = rpc.LeaseTimeToLiveRequest(ID=lease, keys=keys)
        what = f"time to live of lease {lease:x}"
        answer = rpc.LeaseTimeToLiveResponse.decode(
            await self._ask_of_lease(_TIME_TO_LIVE, request.encode(), Kind.READ, lease, what)
        )
        if answer.TTL < 0:
            raise LeaseNotFound(lease)
        return lease_status(answer)

    async def leases(self) -> tuple[LeaseId, ...]:
        request = rpc.LeaseLeasesRequest()
        answer = rpc.LeaseLeasesResponse.decode(
            await self._ask_of_lease(_LEASES, request.encode(), Kind.READ, 0, "list of leases")
        )
        return tuple(sorted(LeaseId(lease.ID) for lease in answer.leases))

    # -- watches ------------------------------------------------------------------------------

    def watch(self, keys: Keys, **options: Unpack[WatchOptions]) -> RemoteWatch:
        check_keys(keys, self._limits)
        return RemoteWatch(self._watches, keys, **options)

    # -- the store as a whole -----------------------------------------------------------------

    async def hash(self, *, at: int | None = None) -> StateHash:
        """Digest the contents, page by page, at one revision.

        Not with etcd's HashKV: that covers history, so that it changes with compaction, and gives 32
        bits.  This one can be compared with any other store's.
        """
        digest = Digest()
        page = await self.range(KeyRange.everything(), at=at, limit=_HASH_PAGE_KEYS)
        revision = page.revision if at is None else Revision(at)
        digest.update(page.kvs)
        while page.more:
            rest = KeyRange.from_key(page.kvs[-1].key + b"\0")
            page = await self.range(rest, at=revision, limit=_HASH_PAGE_KEYS)
            digest.update(page.kvs)
        compact_revision = await self._explaining.compact_revision()
        return StateHash(revision, compact_revision, digest.hexdigest())

    async def status(self) -> StoreStatus:
        contents = await self.range(KeyRange.everything(), count_only=True)
        server = await self._upkeep.status()
        return StoreStatus(
            engine=f"etcd {server.version}",
            revision=contents.revision,
            compact_revision=await self._explaining.compact_revision(),
            keys_count=contents.count,
            leases_count=len(await self.leases()),
            watchers_count=self._watches.watches_count,
            size_bytes=server.dbSizeInUse or server.dbSize,
            size_bytes_max=server.dbSizeQuota,
            alarms=alarms_of(server.errors),
        )

    async def revision_at(self, age_s: float) -> Revision:
        """See `store.api.KnowsTimes`.  Raises `Unsupported` on an etcd, which keeps no times."""
        if not age_s >= 0:
            raise InvalidRequest(f"age_s is {age_s}. Give how many seconds ago, 0 or more.")
        age_ms = math.ceil(min(age_s * 1000, _AGE_MS_MAX))
        what = f"revision of {age_s:,.0f} s ago"
        request = RevisionAtRequest(age_ms=age_ms)
        try:
            answer = await self._asking.ask(_REVISION_AT, request.encode(), Kind.READ, what)
        except GrpcError as error:
            raise await self._times_error(error, what) from error
        return Revision(RevisionAtResponse.decode(answer).revision)

    async def _times_error(self, error: GrpcError, what: str) -> QuoracyError:
        if reason_of(error) is Reason.COMPACTED:
            # Which revision it was is not told, only that it is older than what is kept.
            oldest = await self._explaining.compact_revision()
            return Compacted(wanted=oldest - 1, oldest=oldest)
        if error.code is not StatusCode.UNIMPLEMENTED:
            return error_of(error, what, write=False)
        if error.message.startswith("unknown "):
            return Unsupported(
                f"{what}: this server numbers its changes but does not tell when they were made; etcd "
                "keeps no times. Give a revision."
            )
        return Unsupported(error.message)

    # -- asking -------------------------------------------------------------------------------

    async def _ask(self, path: str, payload: bytes, kind: Kind, op: Op) -> bytes:
        try:
            return await self._asking.ask(path, payload, kind, op)
        except GrpcError as error:
            raise await self._explaining.op_error(
                error, op, size=len(payload), write=kind is not Kind.READ
            ) from error

    async def _ask_of_lease(
        self, path: str, payload: bytes, kind: Kind, lease: int, what: str
    ) -> bytes:
        try:
            return await self._asking.ask(path, payload, kind, what)
        except GrpcError as error:
            raise await self._explaining.lease_error(
                error, lease, what, write=kind is not Kind.READ
            ) from error

    async def newest_revision(self, key: bytes, *, timeout_s: float, at: int | None = None) -> Revision:
        """The revision of a linearizable read that is asked for now, and not of any before.

        With `at` it also says whether that revision can still be read: raises `Compacted`,
        `FutureRevision`.
        """
        op = Range(key, count_only=True, at=at)
        payload = range_request(op).encode()
        try:
            answer = await self._asking.ask(_RANGE, payload, Kind.READ, op, timeout_s=timeout_s)
        except GrpcError as error:
            raise await self._explaining.op_error(error, op, size=len(payload), write=False) from error
        return revision_of(rpc.RangeResponse.decode(answer).header)

    @property
    def current_address(self) -> Address | None:
        """The server that is connected to."""
        channel = self._asking.endpoints.current
        return None if channel is None else channel.address

    def prefer(self, address: Address) -> None:
        """Speak to this server from now on, if it is one of ours; calls that run go on."""
        self._asking.endpoints.prefer(address)

    def hang_up(self, cause: str) -> None:
        """Give the connection up: reads and watches go on at the next server, writes on it are lost."""
        channel = self._asking.endpoints.current
        if channel is not None:
            channel.abort(cause)

    def look_elsewhere(self) -> None:
        """The server that is connected to does not do what it should: speak to another, if any can."""
        self._asking.endpoints.try_others()

    async def compact_revision(self) -> int:
        return await self._explaining.compact_revision()

    async def _newest_revision(self, keys: Keys) -> Revision:
        """By way of a read; of these keys, since who may watch them may read them."""
        return (await self.range(keys, limit=1, keys_only=True)).revision

    def __repr__(self) -> str:
        return f"<RemoteStore {self.target}>"


class _Dialling:
    """How a server of the target is connected to."""

    def __init__(self, target: Target, tls: ssl.SSLContext | None, options: ChannelOptions) -> None:
        self._tls, self._options = tls, options
        self._server_name = target.tls.server_name if target.tls is not None else None

    async def dial(self, address: Address) -> Channel:
        return await connect(
            address,
            tls=self._tls,
            server_name=self._server_name,
            timeout_s=self._options.connect_s,
            options=self._options,
        )


def alarms_of(said: object) -> frozenset[Alarm]:
    """The alarms that the errors in a member's status speak of."""
    # etcd tells them as text: "memberID:1 alarm:NOSPACE".  To list them properly takes root.
    text = str(said)
    raised = {Alarm.NO_SPACE: "NOSPACE", Alarm.STORAGE_FAILED: "CORRUPT"}
    return frozenset(alarm for alarm, name in raised.items() if name in text)
