# ruff: noqa: N815 - fields have the names of the proto files
"""Keys, watches and leases: services KV, Watch and Lease of etcd's api/etcdserverpb/rpc.proto."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Annotated

from quoracy.wire.etcd.kv import Event, KeyValue
from quoracy.wire.protobuf import INT64, UINT64, Field, Message

__all__ = [
    "CompactionRequest",
    "CompactionResponse",
    "Compare",
    "CompareResult",
    "CompareTarget",
    "DeleteRangeRequest",
    "DeleteRangeResponse",
    "FilterType",
    "LeaseCheckpoint",
    "LeaseCheckpointRequest",
    "LeaseCheckpointResponse",
    "LeaseGrantRequest",
    "LeaseGrantResponse",
    "LeaseKeepAliveRequest",
    "LeaseKeepAliveResponse",
    "LeaseLeasesRequest",
    "LeaseLeasesResponse",
    "LeaseRevokeRequest",
    "LeaseRevokeResponse",
    "LeaseStatus",
    "LeaseTimeToLiveRequest",
    "LeaseTimeToLiveResponse",
    "PutRequest",
    "PutResponse",
    "RangeRequest",
    "RangeResponse",
    "RequestOp",
    "ResponseHeader",
    "ResponseOp",
    "SortOrder",
    "SortTarget",
    "TxnRequest",
    "TxnResponse",
    "WatchCancelRequest",
    "WatchCreateRequest",
    "WatchProgressRequest",
    "WatchRequest",
    "WatchResponse",
]


class ResponseHeader(Message, kw_only=True):
    """The server that responded, and its revision."""

    cluster_id: Annotated[int, Field(1, UINT64)] = 0
    member_id: Annotated[int, Field(2, UINT64)] = 0
    revision: Annotated[int, Field(3, INT64)] = 0
    raft_term: Annotated[int, Field(4, UINT64)] = 0


class SortOrder(IntEnum):
    """The direction of a sort."""

    NONE = 0
    ASCEND = 1
    DESCEND = 2


class SortTarget(IntEnum):
    """What a range is sorted by."""

    KEY = 0
    VERSION = 1
    CREATE = 2
    MOD = 3
    VALUE = 4


class RangeRequest(Message, kw_only=True):
    """Read one key, or every key from `key` up to `range_end`."""

    key: Annotated[bytes, Field(1)] = b""
    range_end: Annotated[bytes, Field(2)] = b""
    limit: Annotated[int, Field(3, INT64)] = 0
    revision: Annotated[int, Field(4, INT64)] = 0
    sort_order: Annotated[SortOrder | int, Field(5)] = SortOrder.NONE
    sort_target: Annotated[SortTarget | int, Field(6)] = SortTarget.KEY
    serializable: Annotated[bool, Field(7)] = False
    keys_only: Annotated[bool, Field(8)] = False
    count_only: Annotated[bool, Field(9)] = False
    min_mod_revision: Annotated[int, Field(10, INT64)] = 0
    max_mod_revision: Annotated[int, Field(11, INT64)] = 0
    min_create_revision: Annotated[int, Field(12, INT64)] = 0
    max_create_revision: Annotated[int, Field(13, INT64)] = 0


class RangeResponse(Message, kw_only=True):
    """The keys found; `count` is how many there are without the limit."""

    header: Annotated[ResponseHeader | None, Field(1)] = None
    kvs: Annotated[Sequence[KeyValue], Field(2)] = ()
    more: Annotated[bool, Field(3)] = False
    count: Annotated[int, Field(4, INT64)] = 0


class PutRequest(Message, kw_only=True):
    """Write one key."""

    key: Annotated[bytes, Field(1)] = b""
    value: Annotated[bytes, Field(2)] = b""
    lease: Annotated[int, Field(3, INT64)] = 0
    prev_kv: Annotated[bool, Field(4)] = False
    ignore_value: Annotated[bool, Field(5)] = False
    ignore_lease: Annotated[bool, Field(6)] = False


class PutResponse(Message, kw_only=True):
    """The write is done.  `prev_kv` is set if it was requested and the key existed."""

    header: Annotated[ResponseHeader | None, Field(1)] = None
    prev_kv: Annotated[KeyValue | None, Field(2)] = None


class DeleteRangeRequest(Message, kw_only=True):
    """Remove one key, or every key from `key` up to `range_end`."""

    key: Annotated[bytes, Field(1)] = b""
    range_end: Annotated[bytes, Field(2)] = b""
    prev_kv: Annotated[bool, Field(3)] = False


class DeleteRangeResponse(Message, kw_only=True):
    """How many keys were deleted, and which ones if requested."""

    header: Annotated[ResponseHeader | None, Field(1)] = None
    deleted: Annotated[int, Field(2, INT64)] = 0
    prev_kvs: Annotated[Sequence[KeyValue], Field(3)] = ()


class RequestOp(Message, kw_only=True):
    """One operation of a transaction."""

    request_range: Annotated[RangeRequest | None, Field(1, oneof="request")] = None
    request_put: Annotated[PutRequest | None, Field(2, oneof="request")] = None
    request_delete_range: Annotated[DeleteRangeRequest | None, Field(3, oneof="request")] = None
    request_txn: Annotated[TxnRequest | None, Field(4, oneof="request")] = None


class ResponseOp(Message, kw_only=True):
    """The result of one operation of a transaction."""

    response_range: Annotated[RangeResponse | None, Field(1, oneof="response")] = None
    response_put: Annotated[PutResponse | None, Field(2, oneof="response")] = None
    response_delete_range: Annotated[DeleteRangeResponse | None, Field(3, oneof="response")] = None
    response_txn: Annotated[TxnResponse | None, Field(4, oneof="response")] = None


class CompareResult(IntEnum):
    """How the two sides of a comparison must relate."""

    EQUAL = 0
    GREATER = 1
    LESS = 2
    NOT_EQUAL = 3


class CompareTarget(IntEnum):
    """Which property of a key is compared."""

    VERSION = 0
    CREATE = 1
    MOD = 2
    VALUE = 3
    LEASE = 4


class Compare(Message, kw_only=True):
    """A condition on one key, or on every key of a range."""

    result: Annotated[CompareResult | int, Field(1)] = CompareResult.EQUAL
    target: Annotated[CompareTarget | int, Field(2)] = CompareTarget.VERSION
    key: Annotated[bytes, Field(3)] = b""
    version: Annotated[int | None, Field(4, INT64, oneof="target_union")] = None
    create_revision: Annotated[int | None, Field(5, INT64, oneof="target_union")] = None
    mod_revision: Annotated[int | None, Field(6, INT64, oneof="target_union")] = None
    value: Annotated[bytes | None, Field(7, oneof="target_union")] = None
    lease: Annotated[int | None, Field(8, INT64, oneof="target_union")] = None
    range_end: Annotated[bytes, Field(64)] = b""


class TxnRequest(Message, kw_only=True):
    """If every comparison holds do `success`, else `failure`, in one revision."""

    compare: Annotated[Sequence[Compare], Field(1)] = ()
    success: Annotated[Sequence[RequestOp], Field(2)] = ()
    failure: Annotated[Sequence[RequestOp], Field(3)] = ()


class TxnResponse(Message, kw_only=True):
    """Which branch was taken, and one response for each of its operations."""

    header: Annotated[ResponseHeader | None, Field(1)] = None
    succeeded: Annotated[bool, Field(2)] = False
    responses: Annotated[Sequence[ResponseOp], Field(3)] = ()


class CompactionRequest(Message, kw_only=True):
    """Discard history older than `revision`; `physical` waits until the space is free."""

    revision: Annotated[int, Field(1, INT64)] = 0
    physical: Annotated[bool, Field(2)] = False


class CompactionResponse(Message, kw_only=True):
    """History was discarded."""

    header: Annotated[ResponseHeader | None, Field(1)] = None


class WatchRequest(Message, kw_only=True):
    """A message of a client on a watch stream."""

    create_request: Annotated[WatchCreateRequest | None, Field(1, oneof="request_union")] = None
    cancel_request: Annotated[WatchCancelRequest | None, Field(2, oneof="request_union")] = None
    progress_request: Annotated[WatchProgressRequest | None, Field(3, oneof="request_union")] = None


class FilterType(IntEnum):
    """The events that a watch leaves out."""

    NOPUT = 0
    NODELETE = 1


class WatchCreateRequest(Message, kw_only=True):
    """Begin to watch one key or a range."""

    key: Annotated[bytes, Field(1)] = b""
    range_end: Annotated[bytes, Field(2)] = b""
    start_revision: Annotated[int, Field(3, INT64)] = 0
    progress_notify: Annotated[bool, Field(4)] = False
    filters: Annotated[Sequence[FilterType | int], Field(5)] = ()
    prev_kv: Annotated[bool, Field(6)] = False
    watch_id: Annotated[int, Field(7, INT64)] = 0
    fragment: Annotated[bool, Field(8)] = False


class WatchCancelRequest(Message, kw_only=True):
    """End one watch of the stream."""

    watch_id: Annotated[int, Field(1, INT64)] = 0


class WatchProgressRequest(Message, kw_only=True):
    """Ask for the progress of the stream's watches."""


class WatchResponse(Message, kw_only=True):
    """Events of one watch, or a change of the watch itself."""

    header: Annotated[ResponseHeader | None, Field(1)] = None
    watch_id: Annotated[int, Field(2, INT64)] = 0
    created: Annotated[bool, Field(3)] = False
    canceled: Annotated[bool, Field(4)] = False
    compact_revision: Annotated[int, Field(5, INT64)] = 0
    cancel_reason: Annotated[str, Field(6)] = ""
    fragment: Annotated[bool, Field(7)] = False
    events: Annotated[Sequence[Event], Field(11)] = ()


class LeaseGrantRequest(Message, kw_only=True):
    """Grant a lease; ID 0 lets the server choose."""

    TTL: Annotated[int, Field(1, INT64)] = 0
    ID: Annotated[int, Field(2, INT64)] = 0


class LeaseGrantResponse(Message, kw_only=True):
    """The lease that was granted."""

    header: Annotated[ResponseHeader | None, Field(1)] = None
    ID: Annotated[int, Field(2, INT64)] = 0
    TTL: Annotated[int, Field(3, INT64)] = 0
    error: Annotated[str, Field(4)] = ""


class LeaseRevokeRequest(Message, kw_only=True):
    """End a lease and delete its keys."""

    ID: Annotated[int, Field(1, INT64)] = 0


class LeaseRevokeResponse(Message, kw_only=True):
    """The lease and its keys are deleted."""

    header: Annotated[ResponseHeader | None, Field(1)] = None


class LeaseCheckpoint(Message, kw_only=True):
    """The remaining time of a lease, from the leader."""

    ID: Annotated[int, Field(1, INT64)] = 0
    remaining_TTL: Annotated[int, Field(2, INT64)] = 0


class LeaseCheckpointRequest(Message, kw_only=True):
    """The remaining times of several leases."""

    checkpoints: Annotated[Sequence[LeaseCheckpoint], Field(1)] = ()


class LeaseCheckpointResponse(Message, kw_only=True):
    """The checkpoints were recorded."""

    header: Annotated[ResponseHeader | None, Field(1)] = None


class LeaseKeepAliveRequest(Message, kw_only=True):
    """Renew a lease."""

    ID: Annotated[int, Field(1, INT64)] = 0


class LeaseKeepAliveResponse(Message, kw_only=True):
    """The new time to live; 0 if the lease does not exist."""

    header: Annotated[ResponseHeader | None, Field(1)] = None
    ID: Annotated[int, Field(2, INT64)] = 0
    TTL: Annotated[int, Field(3, INT64)] = 0


class LeaseTimeToLiveRequest(Message, kw_only=True):
    """Ask for the remaining time of a lease and, optionally, its keys."""

    ID: Annotated[int, Field(1, INT64)] = 0
    keys: Annotated[bool, Field(2)] = False


class LeaseTimeToLiveResponse(Message, kw_only=True):
    """The remaining and the granted time; TTL is -1 if the lease does not exist."""

    header: Annotated[ResponseHeader | None, Field(1)] = None
    ID: Annotated[int, Field(2, INT64)] = 0
    TTL: Annotated[int, Field(3, INT64)] = 0
    grantedTTL: Annotated[int, Field(4, INT64)] = 0
    keys: Annotated[Sequence[bytes], Field(5)] = ()


class LeaseLeasesRequest(Message, kw_only=True):
    """Ask for all leases."""


class LeaseStatus(Message, kw_only=True):
    """One lease of the list."""

    ID: Annotated[int, Field(1, INT64)] = 0


class LeaseLeasesResponse(Message, kw_only=True):
    """All leases."""

    header: Annotated[ResponseHeader | None, Field(1)] = None
    leases: Annotated[Sequence[LeaseStatus], Field(2)] = ()
