"""Errors as etcd says them: one table from Quoracy's error tree to gRPC statuses.

The texts are part of etcd's interface: its Go client tells errors apart by comparing them, so where
etcd has a text for what happened it is used to the letter  [api/v3rpc/rpctypes/error.go].  Where it has
none, the error's own message goes out, which says what to do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from quoracy import errors
from quoracy.errors import QuoracyError
from quoracy.wire.grpc import GrpcError, StatusCode

__all__ = ["FAULTS", "EtcdFault", "status_of"]

Status = tuple[StatusCode, str]

_COMPACTED = "etcdserver: mvcc: required revision has been compacted"


class EtcdFault:
    """The faults the face finds by itself, before it asks the store.  Each call makes a new error."""

    @staticmethod
    def empty_key() -> GrpcError:
        return _invalid("etcdserver: key is not provided")

    @staticmethod
    def empty_operation() -> GrpcError:
        # etcd answers an operation that has nothing in it with this text.
        return _invalid("etcdserver: key not found")

    @staticmethod
    def value_provided() -> GrpcError:
        return _invalid("etcdserver: value is provided")

    @staticmethod
    def lease_provided() -> GrpcError:
        return _invalid("etcdserver: lease is provided")

    @staticmethod
    def too_many_operations() -> GrpcError:
        return _invalid("etcdserver: too many operations in txn request")

    @staticmethod
    def sort_option() -> GrpcError:
        return _invalid("etcdserver: invalid sort option")

    @staticmethod
    def compacted() -> GrpcError:
        # Of a revision before the first: every store has forgotten it.
        return GrpcError(StatusCode.OUT_OF_RANGE, _COMPACTED)

    @staticmethod
    def lease_ttl_too_large() -> GrpcError:
        return GrpcError(StatusCode.OUT_OF_RANGE, "etcdserver: too large lease TTL")


def _invalid(text: str) -> GrpcError:
    return GrpcError(StatusCode.INVALID_ARGUMENT, text)


def _own_words(code: StatusCode) -> Callable[[QuoracyError], Status]:
    return lambda error: (code, str(error))


def _too_large(error: errors.TooLarge) -> Status:
    if error.setting == "txn_ops_max":
        return StatusCode.INVALID_ARGUMENT, "etcdserver: too many operations in txn request"
    return StatusCode.INVALID_ARGUMENT, "etcdserver: request is too large"


# What a class has no line for is answered as its nearest ancestor is.
FAULTS: dict[type[QuoracyError], Status | Callable[[Any], Status]] = {
    QuoracyError: _own_words(StatusCode.UNKNOWN),
    GrpcError: lambda error: (error.code, error.message),
    errors.Rejected: _own_words(StatusCode.FAILED_PRECONDITION),
    errors.InvalidRequest: _own_words(StatusCode.INVALID_ARGUMENT),
    errors.KeyNotFound: (StatusCode.INVALID_ARGUMENT, "etcdserver: key not found"),
    errors.DuplicateKey: (
        StatusCode.INVALID_ARGUMENT,
        "etcdserver: duplicate key given in txn request",
    ),
    errors.TooLarge: _too_large,
    errors.Compacted: (StatusCode.OUT_OF_RANGE, _COMPACTED),
    errors.FutureRevision: (
        StatusCode.OUT_OF_RANGE,
        "etcdserver: mvcc: required revision is a future revision",
    ),
    errors.LeaseNotFound: (StatusCode.NOT_FOUND, "etcdserver: requested lease not found"),
    errors.LeaseExists: (StatusCode.FAILED_PRECONDITION, "etcdserver: lease already exists"),
    errors.NoSpace: (StatusCode.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded"),
    # Not applied, try again: what a member of a cluster says that has nobody to ask.
    errors.Unavailable: (StatusCode.UNAVAILABLE, "etcdserver: no leader"),
    errors.StoreClosed: (StatusCode.UNAVAILABLE, "etcdserver: server stopped"),
    errors.Overloaded: (StatusCode.RESOURCE_EXHAUSTED, "etcdserver: too many requests"),
    errors.StorageFailed: (StatusCode.UNAVAILABLE, "etcdserver: unhealthy cluster"),
    # The one text of etcd's that leaves open whether it happened.
    errors.Indeterminate: (StatusCode.UNAVAILABLE, "etcdserver: request timed out"),
    errors.LeaseLost: (StatusCode.NOT_FOUND, "etcdserver: requested lease not found"),
    errors.Unsupported: _own_words(StatusCode.UNIMPLEMENTED),
    # As a gRPC library answers a message that it cannot read.
    errors.ProtocolError: lambda error: (
        StatusCode.INTERNAL,
        f"grpc: error unmarshalling request: {error}",
    ),
    errors.DataError: _own_words(StatusCode.INTERNAL),
    errors.DataInUse: _own_words(StatusCode.FAILED_PRECONDITION),
    errors.DataUnreadable: (StatusCode.DATA_LOSS, "etcdserver: corrupt cluster"),
    errors.FormatUnknown: _own_words(StatusCode.FAILED_PRECONDITION),
}


def status_of(error: QuoracyError) -> tuple[StatusCode, str]:
    """How a call ends that raised this.

    >>> status_of(errors.LeaseNotFound(7))
    (<StatusCode.NOT_FOUND: 5>, 'etcdserver: requested lease not found')
    """
    for kind in type(error).__mro__:
        fault = FAULTS.get(kind)
        if fault is not None:
            return fault(error) if callable(fault) else fault
    raise AssertionError(f"{error!r} is not a QuoracyError")
