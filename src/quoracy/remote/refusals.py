"""Refusals as full errors: which key, which lease, which revision is the oldest kept.

The wire says none of it.  Most of it is in the request; where several operations could be meant, or the
server did not tell a number, it is asked.  What it answers may be a moment younger than the refusal,
which is good enough for a person to read, and for a caller that starts afresh.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from quoracy.errors import (
    Compacted,
    FutureRevision,
    KeyNotFound,
    LeaseExists,
    LeaseNotFound,
    QuoracyError,
    Unavailable,
)
from quoracy.remote.dial import Channel
from quoracy.remote.errors import (
    QuotaUsedUp,
    Reason,
    RefusedAsTooLarge,
    describe,
    error_of,
    keys_read,
    leases_named,
    ops_count,
    puts_that_keep,
    reason_of,
    revisions_read,
)
from quoracy.remote.maintenance import Maintenance
from quoracy.remote.requests import Kind, Requests
from quoracy.remote.translate import range_request, revision_of, watch_request
from quoracy.store.model import Keys, Op, Range
from quoracy.wire.etcd import rpc
from quoracy.wire.grpc import GrpcError

__all__ = ["Refusals"]

logger = logging.getLogger(__name__)

_RANGE = "/etcdserverpb.KV/Range"
_WATCH = "/etcdserverpb.Watch/Watch"
_TIME_TO_LIVE = "/etcdserverpb.Lease/LeaseTimeToLive"


class Refusals:
    """Asks the server what a refusal left out."""

    def __init__(self, requests: Requests, maintenance: Maintenance) -> None:
        self._requests, self._maintenance = requests, maintenance
        self._compacted = 0  # as far as we know

    def note_compaction(self, revision: int) -> None:
        self._compacted = max(self._compacted, revision)

    async def op_error(self, error: GrpcError, op: Op, *, size: int, write: bool) -> QuoracyError:
        """The error of a range, a put, a delete or a transaction whose request had `size` bytes."""
        match reason_of(error):
            case Reason.KEY_NOT_FOUND if puts_that_keep(op):
                return KeyNotFound(await self._missing_key(puts_that_keep(op)))
            case Reason.LEASE_NOT_FOUND if leases_named(op):
                return LeaseNotFound(await self._missing_lease(leases_named(op)))
            case Reason.REQUEST_TOO_LARGE:
                return RefusedAsTooLarge(
                    "the request's size in bytes", size=size, setting="etcd: --max-request-bytes"
                )
            case Reason.TOO_MANY_OPS:
                return RefusedAsTooLarge(
                    "the transaction's number of operations",
                    size=ops_count(op),
                    setting="etcd: --max-txn-ops",
                )
            case _:
                read = revisions_read(op)
                at_least = min(read, default=0) + 1
                return await self.revision_error(
                    error, read, describe(op), keys=keys_read(op), write=write, at_least=at_least
                )

    async def revision_error(
        self,
        error: GrpcError,
        wanted: Sequence[int],
        what: str,
        *,
        keys: Keys = b"\0",
        write: bool,
        at_least: int,
    ) -> QuoracyError:
        """The error of a request that names revisions; if compacted, all before `at_least` are."""
        match reason_of(error):
            case Reason.COMPACTED if wanted:
                oldest = await self._oldest_kept(keys, at_least)
                return Compacted(wanted=_first(wanted, lambda at: at <= oldest), oldest=oldest)
            case Reason.FUTURE_REVISION if wanted:
                newest = await self._newest(keys, max(wanted) - 1)
                at = _first(wanted, lambda at: at > newest)
                return FutureRevision(wanted=at, newest=min(newest, at - 1))
            case _:
                return await self._other_error(error, what, write=write)

    async def lease_error(
        self, error: GrpcError, lease: int, what: str, *, write: bool
    ) -> QuoracyError:
        match reason_of(error):
            case Reason.LEASE_NOT_FOUND:
                return LeaseNotFound(lease)
            case Reason.LEASE_EXISTS:
                return LeaseExists(lease)
            case _:
                return await self._other_error(error, what, write=write)

    async def _other_error(self, error: GrpcError, what: str, *, write: bool) -> QuoracyError:
        if reason_of(error) is Reason.NO_SPACE:
            try:
                server = await self._maintenance.status()
            except QuoracyError:
                return QuotaUsedUp()  # which is certain, whatever became of the question
            return QuotaUsedUp(size=server.dbSizeInUse, size_max=server.dbSizeQuota)
        return error_of(error, what, write=write)

    async def compact_revision(self) -> int:
        """The oldest revision that is kept; 0 if nothing was compacted, as far as can be known."""
        known = max(self._compacted, 1)
        try:
            await self._look(b"\0", at=known)
        except GrpcError as error:
            if reason_of(error) is not Reason.COMPACTED:
                raise error_of(error, "oldest revision", write=False) from error
            return await self._oldest_kept(b"\0", known + 1)
        return self._compacted

    # -- asking -------------------------------------------------------------------------------

    async def _oldest_kept(self, keys: Keys, at_least: int) -> int:
        """Of a store where nothing before `at_least` is kept, the oldest revision that is."""
        try:
            await self._look(keys, at=at_least)
            self.note_compaction(at_least)
        except QuoracyError:
            await self._learn_oldest(keys)
        # If even that failed: that it was compacted is certain, and matters more than the number.
        return max(self._compacted, at_least)

    async def _learn_oldest(self, keys: Keys) -> None:
        """A watch of the beginning is refused, with the number."""

        async def once(channel: Channel, token: str | None, deadline: float) -> int:
            request = watch_request(keys, after=0, puts=False, deletes=False, prev_kv=False)
            stream = channel.stream(_WATCH, token=token)
            stream.send_soon(rpc.WatchRequest(create_request=request).encode())
            try:
                async with asyncio.timeout_at(deadline):
                    while True:
                        response = rpc.WatchResponse.decode(await stream.receive())
                        if response.canceled:
                            return response.compact_revision
            except TimeoutError as error:
                raise Unavailable("the oldest revision is not known") from error
            finally:
                stream.cancel()

        attempts = self._requests.attempts(Kind.READ, "oldest revision")
        try:
            self.note_compaction(await self._requests.attempt(once, attempts))
        except QuoracyError as error:
            logger.info("the oldest revision could not be learned: %s", error)

    async def _newest(self, keys: Keys, otherwise: int) -> int:
        try:
            return await self._look(keys, at=None)
        except QuoracyError:
            return otherwise

    async def _look(self, keys: Keys, *, at: int | None) -> int:
        """The store's revision, by way of a read."""
        request = range_request(Range(keys, at=at, limit=1, keys_only=True))
        answer = await self._requests.ask(_RANGE, request.encode(), Kind.READ, "newest revision")
        return revision_of(rpc.RangeResponse.decode(answer).header)

    async def _missing_key(self, candidates: Sequence[bytes]) -> bytes:
        for key in candidates[:-1]:
            request = range_request(Range(key, count_only=True))
            answer = await self._requests.ask(_RANGE, request.encode(), Kind.READ, "missing key")
            if not rpc.RangeResponse.decode(answer).count:
                return key
        return candidates[-1]

    async def _missing_lease(self, candidates: Sequence[int]) -> int:
        for lease in candidates[:-1]:
            request = rpc.LeaseTimeToLiveRequest(ID=lease)
            answer = await self._requests.ask(
                _TIME_TO_LIVE, request.encode(), Kind.READ, "missing lease"
            )
            if rpc.LeaseTimeToLiveResponse.decode(answer).TTL < 0:
                return lease
        return candidates[-1]


def _first(revisions: Sequence[int], holds: Callable[[int], bool]) -> int:
    return next((revision for revision in revisions if holds(revision)), revisions[0])
