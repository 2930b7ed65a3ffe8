"""Refusals: what the server's table says, the client's takes back; what nobody knows stays unsure."""

from __future__ import annotations

import pytest

from quoracy import errors
from quoracy.errors import (
    Indeterminate,
    InvalidRequest,
    NoSpace,
    QuoracyError,
    Rejected,
    Unavailable,
    Unsupported,
)
from quoracy.faces.etcd.errors import status_of
from quoracy.remote.errors import Reason, error_of, may_try_again, reason_of, reason_of_text
from quoracy.wire.grpc import GrpcError, StatusCode

_THERE_AND_BACK = [
    (errors.InvalidRequest("no"), Reason.INVALID),
    (errors.KeyNotFound(b"k"), Reason.KEY_NOT_FOUND),
    (errors.DuplicateKey(b"k"), Reason.DUPLICATE_KEY),
    (errors.TooLarge("it", size=2, size_max=1, setting="request_bytes_max"), Reason.REQUEST_TOO_LARGE),
    (errors.TooLarge("it", size=2, size_max=1, setting="txn_ops_max"), Reason.TOO_MANY_OPS),
    (errors.Compacted(wanted=1, oldest=2), Reason.COMPACTED),
    (errors.FutureRevision(wanted=2, newest=1), Reason.FUTURE_REVISION),
    (errors.LeaseNotFound(7), Reason.LEASE_NOT_FOUND),
    (errors.LeaseExists(7), Reason.LEASE_EXISTS),
    (errors.NoSpace(size=2, size_max=1), Reason.NO_SPACE),
    (errors.Rejected("no"), Reason.REFUSED),
    (errors.Unavailable("later"), Reason.NOT_NOW),
    (errors.Overloaded(pending=2, pending_max=1), Reason.NOT_NOW),
    (errors.StorageFailed("disk", OSError()), Reason.NOT_NOW),
    (errors.Unsupported("that"), Reason.UNSUPPORTED),
    # A server that stops may have started on it.
    (errors.StoreClosed(), Reason.UNSURE),
    (errors.Indeterminate("who knows"), Reason.UNSURE),
]


@pytest.mark.parametrize(
    ("error", "reason"), _THERE_AND_BACK, ids=[type(error).__name__ for error, _ in _THERE_AND_BACK]
)
def test_what_our_server_says_our_client_understands(error: QuoracyError, reason: Reason) -> None:
    assert reason_of(GrpcError(*status_of(error))) is reason


_UNKNOWN = "something new"


@pytest.mark.parametrize("code", [code for code in StatusCode if code is not StatusCode.OK])
def test_a_failed_write_is_called_not_applied_only_if_that_is_sure(code: StatusCode) -> None:
    error = error_of(GrpcError(code, _UNKNOWN), "put of b'k'", write=True)
    sure = {
        StatusCode.INVALID_ARGUMENT,
        StatusCode.NOT_FOUND,
        StatusCode.ALREADY_EXISTS,
        StatusCode.PERMISSION_DENIED,
        StatusCode.FAILED_PRECONDITION,
        StatusCode.OUT_OF_RANGE,
        StatusCode.UNIMPLEMENTED,
        StatusCode.UNAUTHENTICATED,
    }
    assert isinstance(error, (Rejected, Unsupported) if code in sure else Indeterminate)
    assert "put of b'k'" in str(error)
    assert _UNKNOWN in str(error)


@pytest.mark.parametrize("code", [code for code in StatusCode if code is not StatusCode.OK])
def test_a_read_is_never_indeterminate(code: StatusCode) -> None:
    error = error_of(GrpcError(code, _UNKNOWN), "range of b'k'", write=False)
    assert isinstance(error, Rejected | Unsupported | Unavailable)


@pytest.mark.parametrize(
    ("text", "again"),
    [
        ("etcdserver: leader changed", True),
        ("etcdserver: request timed out", True),
        ("etcdserver: no leader", True),
        ("etcdserver: too many requests", True),
        ("etcdserver: mvcc: database space exceeded", False),
        ("etcdserver: permission denied", False),
        ("etcdserver: key not found", False),
    ],
)
def test_a_read_is_asked_again_where_that_may_help(text: str, again: bool) -> None:
    assert may_try_again(GrpcError(StatusCode.UNAVAILABLE, text)) is again


def test_no_space_needs_no_numbers() -> None:
    error = error_of(
        GrpcError(StatusCode.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded"),
        "put",
        write=True,
    )
    assert isinstance(error, NoSpace)
    assert " 0 " not in str(error)


def test_a_request_the_transport_refused_for_its_size_is_too_large() -> None:
    error = GrpcError(StatusCode.RESOURCE_EXHAUSTED, "grpc: received message larger than max (3 vs. 2)")
    assert reason_of(error) is Reason.REQUEST_TOO_LARGE
    assert isinstance(error_of(error, "put", write=True), InvalidRequest)


def test_a_cancelled_watch_tells_its_reason_inside_a_sentence() -> None:
    said = "rpc error: code = Unauthenticated desc = etcdserver: invalid auth token"
    assert reason_of_text(said) is Reason.TOKEN_STALE
    assert reason_of_text("watcher gone") is Reason.REFUSED
