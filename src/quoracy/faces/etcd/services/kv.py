"""etcd's KV service: Range, Put, DeleteRange, Txn, Compact."""

from __future__ import annotations

from quoracy.faces.etcd.errors import EtcdFault
from quoracy.faces.etcd.methods import Ahead, Done, Method, Unary, WithMetadata
from quoracy.faces.etcd.services import translate
from quoracy.faces.etcd.services.header import Headers
from quoracy.faces.etcd.services.quick import QuickTxns
from quoracy.faces.etcd.services.standing import Standing
from quoracy.store.api import Store
from quoracy.store.legacy import Begins, ReadsAtOnce, RepliesAhead
from quoracy.store.model import Put, PutResult, RangeResult, Txn, TxnResult
from quoracy.store.rules import Limits, check_put, check_txn, txn_bytes
from quoracy.wire.etcd.rpc import (
    CompactionRequest,
    CompactionResponse,
    DeleteRangeRequest,
    DeleteRangeResponse,
    PutRequest,
    PutResponse,
    RangeRequest,
    RangeResponse,
    TxnRequest,
    TxnResponse,
)

__all__ = ["KvService"]


class KvService:
    """Most calls are a put or a read of one key: those two go the shortest way."""

    def __init__(self, store: Store, headers: Headers, limits: Limits, standing: Standing) -> None:
        self._store = store
        self._header_at = headers.at
        self._headers = headers
        self._local = store if isinstance(store, Begins) else None
        self._replies = store if isinstance(store, RepliesAhead) else None
        self._reads = store if isinstance(store, ReadsAtOnce) else None
        self._limits = limits
        self._standing = standing
        self._request_bytes_max = limits.request_bytes_max
        self._quick = (
            None
            if self._local is None
            else QuickTxns(
                self._local,
                headers,
                request_bytes_max=limits.request_bytes_max,
                ops_max=limits.txn_ops_max,
            )
        )

    def methods(self) -> list[Method]:
        service = "/etcdserverpb.KV/"
        return [
            Unary(
                service + "Range",
                RangeRequest,
                RangeResponse,
                self.range,
                ("/v3/kv/range",),
                self.prompt_range if self._reads else None,
            ),
            Unary(
                service + "Put",
                PutRequest,
                PutResponse,
                self.put,
                ("/v3/kv/put",),
                self.prompt_put if self._local else None,
                writes=True,
            ),
            Unary(
                service + "DeleteRange",
                DeleteRangeRequest,
                DeleteRangeResponse,
                self.delete_range,
                ("/v3/kv/deleterange",),
            ),
            Unary(
                service + "Txn",
                TxnRequest,
                TxnResponse,
                self.txn,
                ("/v3/kv/txn",),
                self.prompt_txn if self._local else None,
                quick=None if self._quick is None else self._quick.begin,
                writes=True,
            ),
            Unary(
                service + "Compact",
                CompactionRequest,
                CompactionResponse,
                self.compact,
                ("/v3/kv/compaction",),
            ),
        ]

    async def range(self, request: RangeRequest) -> RangeResponse | WithMetadata[RangeResponse]:
        op = translate.range_of(request)
        result = await self._store.range(
            op.keys,
            at=op.at,
            limit=op.limit,
            sort_by=op.sort_by,
            descending=op.descending,
            keys_only=op.keys_only,
            count_only=op.count_only,
            mod_revision_min=op.mod_revision_min,
            mod_revision_max=op.mod_revision_max,
            create_revision_min=op.create_revision_min,
            create_revision_max=op.create_revision_max,
            serializable=op.serializable,
        )
        response = translate.range_response(request, result, self._header_at(result.revision))
        if result.is_stale:
            return WithMetadata(response, self._standing.stale_metadata())
        return response

    async def put(self, request: PutRequest) -> PutResponse:
        self._check_put(request)
        result = await self._store.put(
            request.key,
            request.value,
            lease=request.lease,
            prev_kv=request.prev_kv,
            ignore_value=request.ignore_value,
            ignore_lease=request.ignore_lease,
        )
        return self._put_response(result)

    # The ways without a task answer in bytes: a header that is mostly made already, and the rest.

    def prompt_range(
        self,
        request: RangeRequest,
        done: Done,
        ahead: Ahead | None = None,  # noqa: ARG002 (it is not made to wait)
    ) -> bool:
        assert self._reads is not None
        result = self._reads.read_now(translate.range_of(request))
        rest = translate.range_response(request, result, None)
        done(self._headers.encoded(result.revision) + rest.encode(), None)
        return True

    def prompt_put(self, request: PutRequest, done: Done, ahead: Ahead | None = None) -> bool:
        assert self._local is not None
        self._check_put(request)
        op = Put(
            request.key,
            request.value,
            request.lease,
            request.prev_kv,
            request.ignore_value,
            request.ignore_lease,
        )

        def on_done(result: PutResult | None, error: BaseException | None) -> None:
            if result is None:
                done(None, error)
            else:
                done(self._encoded_put(result), None)

        if ahead is None or self._replies is None:
            return self._local.begin(op, on_done)
        reply = ahead
        return self._replies.begin_replying(
            op, on_done, lambda result: reply(self._encoded_put(result))
        )

    def _encoded_put(self, result: PutResult) -> bytes:
        header = self._headers.encoded(result.revision)
        if result.prev_kv is None:
            return header
        return header + PutResponse(prev_kv=translate.as_message(result.prev_kv)).encode()

    def _check_put(self, request: PutRequest) -> None:
        translate.check_put(request)
        if len(request.key) + len(request.value) > self._request_bytes_max:
            check_put(Put(request.key, request.value), self._limits)

    def _put_response(self, result: PutResult) -> PutResponse:
        return PutResponse(
            header=self._header_at(result.revision), prev_kv=translate.as_message(result.prev_kv)
        )

    async def delete_range(self, request: DeleteRangeRequest) -> DeleteRangeResponse:
        op = translate.delete_of(request)
        result = await self._store.delete(op.keys, prev_kv=op.prev_kv)
        return DeleteRangeResponse(
            header=self._header_at(result.revision),
            deleted=result.deleted,
            prev_kvs=translate.as_messages(result.prev_kvs),
        )

    async def txn(self, request: TxnRequest) -> TxnResponse | WithMetadata[TxnResponse]:
        result = await self._store.txn(self._txn_of(request))
        response = translate.txn_response(request, result, self._header_at(result.revision))
        if _shows_stale(result):
            return WithMetadata(response, self._standing.stale_metadata())
        return response

    def prompt_txn(self, request: TxnRequest, done: Done, ahead: Ahead | None = None) -> bool:
        assert self._local is not None

        def encoded(result: TxnResult) -> bytes:
            rest = translate.txn_response(request, result, None)
            return self._headers.encoded(result.revision) + rest.encode()

        def on_done(result: TxnResult | None, error: BaseException | None) -> None:
            if result is None:
                done(None, error)
            else:
                done(encoded(result), None)

        txn = self._txn_of(request)
        if ahead is None or self._replies is None:
            return self._local.begin(txn, on_done)
        reply = ahead
        return self._replies.begin_replying(txn, on_done, lambda result: reply(encoded(result)))

    def _txn_of(self, request: TxnRequest) -> Txn:
        txn = translate.txn_of(request, self._limits.txn_ops_max)
        if txn_bytes(txn) > self._request_bytes_max:  # the store may allow other faces more
            check_txn(txn, self._limits)
        return txn

    async def compact(self, request: CompactionRequest) -> CompactionResponse:
        """`physical` needs nothing more: what was compacted is not kept anywhere a client could see."""
        if request.revision < 1:
            raise EtcdFault.compacted()
        await self._store.compact(request.revision)
        return CompactionResponse(header=await self._headers.now())


def _shows_stale(result: TxnResult) -> bool:
    """Whether a transaction that only read, from what is here, could not tell if there is more."""
    return any(
        each.is_stale if isinstance(each, RangeResult) else _shows_stale(each)
        for each in result.results
        if isinstance(each, RangeResult | TxnResult)
    )
