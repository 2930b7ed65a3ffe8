"""`RemoteStore`: the Store protocol over the network, against Quoracy's own server or a real etcd.

What the network adds to the contract
    * A request has `timeout_s`.  A read that is not answered by then ends with `Unavailable`; a write
      that may have left this process ends with `Indeterminate`, and is never sent a second time.
    * Reads are linearizable unless they ask for `serializable`.
    * Limits are the server's: it refuses what is too large, and its limit is not known here.  A caller
      that knows its limits can have them checked here, before anything is sent.

What cannot be known from here: how many watchers others have (`status` counts our own), a quota that
the server does not report (0), and a compaction to revision 1 by another client (it removes nothing).
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Unpack

from quoracy.clock import Clock, SystemClock
from quoracy.errors import (
    Compacted,
    InvalidRequest,
    LeaseNotFound,
    ProtocolError,
    QuoracyError,
    Rejected,
    Unavailable,
    Unsupported,
)
from quoracy.remote.authentication import Authentication
from quoracy.remote.calls import AwaitedCall
from quoracy.remote.dial import Channel, ChannelOptions, connect, make_context
from quoracy.remote.endpoints import Endpoints
from quoracy.remote.errors import Reason, describe, error_of, indeterminate, reason_of
from quoracy.remote.lease_keeper import LeaseKeeper
from quoracy.remote.maintenance import Maintenance
from quoracy.remote.refusals import Refusals
from quoracy.remote.requests import Attempts, Kind, Requests
from quoracy.remote.submission import (
    PATH_RANGE,
    Result,
    Sent,
    Submission,
    is_read,
    result_of,
    unreadable,
)
from quoracy.remote.translate import (
    grant_result,
    lease_status,
    range_request,
    revision_of,
    ttl_seconds,
)
from quoracy.remote.urls import Address, Target
from quoracy.remote.watch import RemoteWatch
from quoracy.remote.watch_hub import WatchHub
from quoracy.store.api import WatchOptions
from quoracy.store.completion import Completion
from quoracy.store.contention import wait_by_watching
from quoracy.store.coroutines import CoroutineStore
from quoracy.store.digest import Digest
from quoracy.store.model import (
    Alarm,
    Delete,
    KeyRange,
    Keys,
    LeaseGrant,
    LeaseId,
    LeaseStatus,
    Op,
    Put,
    Range,
    Revision,
    StateHash,
    StoreStatus,
    Txn,
    WaitFirst,
)
from quoracy.store.rules import Limits, check_keys, check_lease_id, check_lease_ttl, check_op
from quoracy.wire.etcd import rpc
from quoracy.wire.grpc import GrpcError, StatusCode
from quoracy.wire.quoracy import RevisionAtRequest, RevisionAtResponse

__all__ = ["NO_LIMITS", "TIMEOUT_S", "RemoteStore", "alarms_of", "open_remote"]

TIMEOUT_S = 5.0

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


class RemoteStore(CoroutineStore):
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
        self._loop = asyncio.get_running_loop()
        dial = partial(
            connect,
            tls=None if target.tls is None else make_context(target.tls),
            server_name=None if target.tls is None else target.tls.server_name,
            timeout_s=options.connect_s,
        )
        endpoints = Endpoints(
            target.addresses, dial=partial(dial, options=options), rng=rng, clock=clock
        )
        authentication = Authentication(target.user, target.password, timeout_s=timeout_s)
        self._requests = Requests(endpoints, authentication, timeout_s=timeout_s, rng=rng)
        self.submission = Submission(self._requests, self._unanswered)
        self._finishing: set[asyncio.Task[Result]] = set()
        # A server can say how it is doing without a leader, too.
        without_leader = dataclasses.replace(options, require_leader=False)
        self._maintenance = Maintenance(self._requests, dial=partial(dial, options=without_leader))
        self._refusals = Refusals(self._requests, self._maintenance)
        self._keeper = LeaseKeeper()
        self._watches = WatchHub(
            self._requests,
            newest_revision=self._newest_revision,
            server_version=self._maintenance.server_version,
            buffer_events_max=limits.watch_buffer_events_max,
            buffer_bytes_max=limits.watch_buffer_bytes_max,
            rng=rng,
        )
        self.member_list = self._maintenance.member_list
        self.member_add = self._maintenance.member_add
        self.member_remove = self._maintenance.member_remove
        self.endpoint_status = self._maintenance.endpoint_status
        self.server_status = self._maintenance.status
        self.snapshot = self._maintenance.snapshot

    async def close(self) -> None:
        """End every watch and every request with `StoreClosed`, and hang up.

        A write that was sent and not answered yet raises `Indeterminate`.
        """
        await self._watches.close()
        await self._keeper.close()
        await self._requests.close()
        if self._finishing:  # which all end now: there is nobody left to ask
            await asyncio.wait(self._finishing)

    # -- keys ---------------------------------------------------------------------------------

    def submit(self, op: Put | Delete | Txn, completion: Completion, /) -> None:
        self._begin(op, completion)

    def read(self, op: Range | WaitFirst, completion: Completion, /) -> None:
        self._begin(op, completion)

    def _begin(self, op: Op | WaitFirst, completion: Completion) -> None:
        try:
            if not isinstance(op, WaitFirst):
                check_op(op, self._limits)
            self.submission.begin(op, completion)
        except Rejected as error:  # it breaks a rule, or cannot be put into a request
            self._loop.call_soon(completion.done, None, error)

    def _unanswered(self, sent: Sent, error: BaseException | None) -> None:
        """Finish what could not be sent or was not answered well, in a task; see `Submission`."""
        op, requests = sent.op, self._requests
        kind = Kind.READ if is_read(op) else Kind.WRITE
        attempts = requests.attempts(kind, op, math.inf if isinstance(op, WaitFirst) else None)
        refusal: GrpcError | None = None
        if sent.channel is not None and error is not None:
            attempts.deadline = sent.deadline
            try:
                requests.note_failure(error, attempts, sent.channel, sent.token)
            except GrpcError as refused:
                refusal = refused
            except QuoracyError as final:
                sent.finish(None, final)
                return
        finish = self._finish_wait if isinstance(op, WaitFirst) else self._finish
        task = self._loop.create_task(finish(sent, attempts, refusal), name="quoracy-finish")
        self._finishing.add(task)

        def abandon() -> None:
            if kind is Kind.READ or not attempts.is_sent:
                task.cancel()

        def finished(task: asyncio.Task[Result]) -> None:
            self._finishing.discard(task)
            if not task.cancelled():
                failure = task.exception()
                sent.finish(None if failure is not None else task.result(), failure)
            elif attempts.is_sent and kind is Kind.WRITE:
                sent.finish(
                    None, indeterminate(describe(op), "it was given up while it was on its way")
                )
            else:
                sent.finish(None, Unavailable(f"{describe(op)}: the caller gave it up."))

        sent.completion.on_abandon = abandon
        task.add_done_callback(finished)

    async def _finish(self, sent: Sent, attempts: Attempts, refusal: GrpcError | None) -> Result:
        """Ask again as long as that is allowed, and find out what a refusal leaves out."""
        op = sent.op
        assert not isinstance(op, WaitFirst)
        if refusal is None:
            try:
                answer = await self._requests.ask_again(
                    sent.path, sent.payload, attempts, self._requests.timeout_s
                )
            except GrpcError as error:
                refusal = error
            else:
                try:
                    return result_of(op, answer)
                except ProtocolError as broken:
                    raise unreadable(op, broken) from broken
        raise await self._refusals.op_error(
            refusal, op, size=len(sent.payload), write=attempts.kind is not Kind.READ
        ) from refusal

    async def _finish_wait(self, sent: Sent, attempts: Attempts, refusal: GrpcError | None) -> Result:
        """Wait again after a loss; watch where the server does not know the wait, or has no room."""
        op = sent.op
        assert isinstance(op, WaitFirst)

        async def once(channel: Channel, token: str | None, deadline: float) -> bytes:
            del deadline  # there is none
            call = AwaitedCall(channel, sent.payload)
            if not self.submission.begin_wait(call, channel, token):
                raise Unsupported("a watch does as well")
            return await call.future

        try:
            if refusal is not None:
                raise refusal
            return result_of(op, await self._requests.attempt(once, attempts))
        except GrpcError as error:
            if error.code is not StatusCode.UNIMPLEMENTED:
                raise error_of(error, describe(op), write=False) from error
            self.submission.knows_queues = False
        except Unsupported:
            pass
        return await wait_by_watching(self, op.name, op.key, op.token)

    async def compact(self, at: int) -> None:
        if at < 1:
            raise InvalidRequest(f"at is {at}; revisions start at 1.")
        request = rpc.CompactionRequest(revision=at)
        try:
            await self._requests.ask(_COMPACT, request.encode(), Kind.WRITE, f"compaction to {at}")
        except GrpcError as error:
            raise await self._refusals.revision_error(
                error, [at], f"compaction to {at}", write=True, at_least=at
            ) from error
        self._refusals.note_compaction(at)

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

        attempts = self._requests.attempts(Kind.RENEWAL, what, timeout_s)
        try:
            ttl = await self._requests.attempt(once, attempts)
        except GrpcError as error:
            raise await self._refusals.lease_error(error, lease, what, write=True) from error
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
        compact_revision = await self._refusals.compact_revision()
        return StateHash(revision, compact_revision, digest.hexdigest())

    async def status(self) -> StoreStatus:
        contents = await self.range(KeyRange.everything(), count_only=True)
        server = await self._maintenance.status()
        return StoreStatus(
            engine=f"etcd {server.version}",
            revision=contents.revision,
            compact_revision=await self._refusals.compact_revision(),
            keys_count=contents.count,
            leases_count=len(await self.leases()),
            watchers_count=self._watches.watches_count,
            size_bytes=server.dbSizeInUse or server.dbSize,
            size_bytes_max=server.dbSizeQuota,
            alarms=alarms_of(server.errors),
        )

    async def revision_at(self, age_s: float) -> Revision:
        """See `Store.revision_at`.  Raises `Unsupported` on an etcd, which keeps no times."""
        if not age_s >= 0:
            raise InvalidRequest(f"age_s is {age_s}. Give how many seconds ago, 0 or more.")
        age_ms = math.ceil(min(age_s * 1000, _AGE_MS_MAX))
        what = f"revision of {age_s:,.0f} s ago"
        request = RevisionAtRequest(age_ms=age_ms)
        try:
            answer = await self._requests.ask(_REVISION_AT, request.encode(), Kind.READ, what)
        except GrpcError as error:
            raise await self._times_error(error, what) from error
        return Revision(RevisionAtResponse.decode(answer).revision)

    async def _times_error(self, error: GrpcError, what: str) -> QuoracyError:
        if reason_of(error) is Reason.COMPACTED:
            # Which revision it was is not known, only that it is older than what is kept.
            oldest = await self._refusals.compact_revision()
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

    async def _ask_of_lease(
        self, path: str, payload: bytes, kind: Kind, lease: int, what: str
    ) -> bytes:
        try:
            return await self._requests.ask(path, payload, kind, what)
        except GrpcError as error:
            raise await self._refusals.lease_error(
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
            answer = await self._requests.ask(PATH_RANGE, payload, Kind.READ, op, timeout_s=timeout_s)
        except GrpcError as error:
            raise await self._refusals.op_error(error, op, size=len(payload), write=False) from error
        return revision_of(rpc.RangeResponse.decode(answer).header)

    @property
    def current_address(self) -> Address | None:
        """The server that is connected to."""
        channel = self._requests.endpoints.current
        return None if channel is None else channel.address

    def prefer(self, address: Address) -> None:
        """Use this server from now on, if it is one of ours; calls that run go on."""
        self._requests.endpoints.prefer(address)

    def hang_up(self, cause: str) -> None:
        """Give the connection up: reads and watches go on at the next server, writes on it are lost."""
        channel = self._requests.endpoints.current
        if channel is not None:
            channel.abort(cause)

    def look_elsewhere(self) -> None:
        """The current server does not do what it should: use another, if one can be reached."""
        self._requests.endpoints.try_others()

    async def compact_revision(self) -> int:
        return await self._refusals.compact_revision()

    async def _newest_revision(self, keys: Keys) -> Revision:
        """By way of a read; of these keys, since a user that may watch them may read them."""
        return (await self.range(keys, limit=1, keys_only=True)).revision

    def __repr__(self) -> str:
        return f"<RemoteStore {self.target}>"


def alarms_of(said: object) -> frozenset[Alarm]:
    """The alarms that the errors in a member's status name."""
    # etcd gives them as text: "memberID:1 alarm:NOSPACE".  To list them properly takes root.
    text = str(said)
    raised = {Alarm.NO_SPACE: "NOSPACE", Alarm.STORAGE_FAILED: "CORRUPT"}
    return frozenset(alarm for alarm, name in raised.items() if name in text)
