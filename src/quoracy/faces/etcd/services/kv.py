"""etcd's KV service: Range, Put, DeleteRange, Txn.  (Compact is with `maintenance`.)

Compiled: most calls of a busy server are these.  Answers are encoded in two parts, a header that is
mostly encoded already and the rest.
"""

from __future__ import annotations

from quoracy.faces.etcd.answer import Answer, Caller, Metadata
from quoracy.faces.etcd.methods import Method, Unary
from quoracy.faces.etcd.services import translate
from quoracy.faces.etcd.services.member import Headers, Standing
from quoracy.store.api import Store
from quoracy.store.model import DeleteResult, PutResult, RangeResult, TxnResult
from quoracy.store.rules import Limits, check_put, check_txn, txn_bytes
from quoracy.wire.etcd.fast_codec import decode_txn, encode_txn_result
from quoracy.wire.etcd.rpc import (
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
    def __init__(self, store: Store, headers: Headers, limits: Limits, standing: Standing) -> None:
        self._store = store
        self._headers = headers
        self._limits = limits
        self._standing = standing
        self._request_bytes_max = limits.request_bytes_max
        self._operations_max = limits.txn_ops_max

    def methods(self) -> list[Method]:
        service, route = "/etcdserverpb.KV/", "/v3/kv/"
        return [
            Unary(service + "Range", RangeRequest, RangeResponse, self._range, (route + "range",)),
            Unary(service + "Put", PutRequest, PutResponse, self._put, (route + "put",)),
            Unary(
                service + "DeleteRange",
                DeleteRangeRequest,
                DeleteRangeResponse,
                self._delete,
                (route + "deleterange",),
            ),
            Unary(service + "Txn", TxnRequest, TxnResponse, self._txn, (route + "txn",)),
        ]

    def _range(self, payload: bytes, call: Caller) -> Answer:
        request = RangeRequest.decode(payload)
        op = translate.range_of(request)
        answer = _RangeAnswer(call, self._headers, self._standing, request)
        self._store.read(op, answer)
        return answer

    def _put(self, payload: bytes, call: Caller) -> Answer:
        op = translate.put_of(PutRequest.decode(payload))
        if len(payload) > self._request_bytes_max:  # the store may allow other faces more
            check_put(op, self._limits)
        answer = _PutAnswer(call, self._headers)
        self._store.submit(op, answer)
        return answer

    def _delete(self, payload: bytes, call: Caller) -> Answer:
        op = translate.delete_of(DeleteRangeRequest.decode(payload))
        answer = _DeleteAnswer(call, self._headers)
        self._store.submit(op, answer)
        return answer

    def _txn(self, payload: bytes, call: Caller) -> Answer:
        request: TxnRequest | None = None
        txn = decode_txn(payload, self._operations_max)
        if txn is None:
            request = TxnRequest.decode(payload)
            txn = translate.txn_of(request, self._operations_max)
        if len(payload) > self._request_bytes_max and txn_bytes(txn) > self._request_bytes_max:
            check_txn(txn, self._limits)
        answer = _TxnAnswer(call, self._headers, self._standing, request)
        self._store.submit(txn, answer)
        return answer


class _PutAnswer(Answer):
    __slots__ = ("_headers",)

    def __init__(self, call: Caller, headers: Headers) -> None:
        super().__init__(call)
        self._headers = headers

    def encode(self, result: PutResult) -> bytes:
        header: bytes = self._headers.encoded(result.revision)
        if result.prev_kv is None:
            return header
        rest: bytes = PutResponse(prev_kv=translate.as_message(result.prev_kv)).encode()
        return header + rest


class _DeleteAnswer(Answer):
    __slots__ = ("_headers",)

    def __init__(self, call: Caller, headers: Headers) -> None:
        super().__init__(call)
        self._headers = headers

    def encode(self, result: DeleteResult) -> bytes:
        header: bytes = self._headers.encoded(result.revision)
        prev_kvs = translate.as_messages(result.prev_kvs)
        rest: bytes = DeleteRangeResponse(deleted=result.deleted, prev_kvs=prev_kvs).encode()
        return header + rest


class _RangeAnswer(Answer):
    __slots__ = ("_headers", "_request", "_standing")

    def __init__(
        self, call: Caller, headers: Headers, standing: Standing, request: RangeRequest
    ) -> None:
        super().__init__(call)
        self._headers, self._standing, self._request = headers, standing, request

    def encode(self, result: RangeResult) -> bytes:
        header: bytes = self._headers.encoded(result.revision)
        rest: bytes = translate.range_response(self._request, result, None).encode()
        return header + rest

    def metadata(self, result: RangeResult) -> Metadata:
        return self._standing.stale_metadata() if result.is_stale else ()


class _TxnAnswer(Answer):
    """To a transaction that was decoded fast if there is no `request`."""

    __slots__ = ("_headers", "_request", "_standing")

    def __init__(
        self, call: Caller, headers: Headers, standing: Standing, request: TxnRequest | None
    ) -> None:
        super().__init__(call)
        self._headers, self._standing, self._request = headers, standing, request

    def encode(self, result: TxnResult) -> bytes:
        header: bytes = self._headers.encoded(result.revision)
        if self._request is None:
            return header + encode_txn_result(result)
        rest: bytes = translate.txn_response(self._request, result, None).encode()
        return header + rest

    def metadata(self, result: TxnResult) -> Metadata:
        if self._request is None or not _shows_stale(result):
            return ()
        return self._standing.stale_metadata()


def _shows_stale(result: TxnResult) -> bool:
    """Whether a transaction that only read, from what is here, could not tell if there is more."""
    for each in result.results:
        if isinstance(each, RangeResult):
            if each.is_stale:
                return True
        elif isinstance(each, TxnResult) and _shows_stale(each):
            return True
    return False
