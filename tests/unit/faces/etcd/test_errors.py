"""Errors in etcd's words: every leaf of the tree has its line, and the texts are etcd's."""

from __future__ import annotations

import pytest

from quoracy import errors
from quoracy.errors import QuoracyError
from quoracy.faces.etcd.errors import FAULTS, status_of
from quoracy.wire.grpc import GrpcError, StatusCode

# What only the library raises, in the process of its user: no server ever answers with it.
OF_THE_CLIENT = {
    errors.Forked,
    errors.LeadershipLost,
    errors.LockLost,
    errors.SessionLost,
    errors.StaleToken,
    errors.TimedOut,
    errors.ValueUnreadable,
}


def every_error(root: type[QuoracyError] = QuoracyError) -> set[type[QuoracyError]]:
    return {root}.union(*(every_error(each) for each in root.__subclasses__()))


def test_every_error_of_the_tree_has_a_line() -> None:
    ours = {kind for kind in every_error() if kind.__module__.startswith("quoracy.")}
    declared = {kind for kind in ours if kind.__module__ == "quoracy.errors"} | {GrpcError}
    assert declared - OF_THE_CLIENT - FAULTS.keys() == set()


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (
            errors.Compacted(wanted=1, oldest=2),
            StatusCode.OUT_OF_RANGE,
            "etcdserver: mvcc: required revision has been compacted",
        ),
        (
            errors.FutureRevision(wanted=9, newest=2),
            StatusCode.OUT_OF_RANGE,
            "etcdserver: mvcc: required revision is a future revision",
        ),
        (errors.LeaseNotFound(1), StatusCode.NOT_FOUND, "etcdserver: requested lease not found"),
        (errors.LeaseExists(1), StatusCode.FAILED_PRECONDITION, "etcdserver: lease already exists"),
        (errors.KeyNotFound(b"k"), StatusCode.INVALID_ARGUMENT, "etcdserver: key not found"),
        (
            errors.DuplicateKey(b"k"),
            StatusCode.INVALID_ARGUMENT,
            "etcdserver: duplicate key given in txn request",
        ),
        (
            errors.TooLarge("x", size=2, size_max=1, setting="request_bytes_max"),
            StatusCode.INVALID_ARGUMENT,
            "etcdserver: request is too large",
        ),
        (
            errors.TooLarge("x", size=2, size_max=1, setting="txn_ops_max"),
            StatusCode.INVALID_ARGUMENT,
            "etcdserver: too many operations in txn request",
        ),
        (
            errors.NoSpace(size=2, size_max=1),
            StatusCode.RESOURCE_EXHAUSTED,
            "etcdserver: mvcc: database space exceeded",
        ),
        (
            errors.Overloaded(pending=2, pending_max=1),
            StatusCode.RESOURCE_EXHAUSTED,
            "etcdserver: too many requests",
        ),
        (errors.StoreClosed(), StatusCode.UNAVAILABLE, "etcdserver: server stopped"),
        (errors.Indeterminate("?"), StatusCode.UNAVAILABLE, "etcdserver: request timed out"),
        (errors.Unsupported("range: x"), StatusCode.UNIMPLEMENTED, "range: x"),
        (errors.InvalidRequest("no"), StatusCode.INVALID_ARGUMENT, "no"),
        (GrpcError(StatusCode.ABORTED, "stop"), StatusCode.ABORTED, "stop"),
    ],
)
def test_texts_are_etcds(error: QuoracyError, code: StatusCode, text: str) -> None:
    assert status_of(error) == (code, text)


def test_error_without_a_line_is_answered_as_its_ancestor() -> None:
    class NewFault(errors.LeaseNotFound):
        pass

    assert status_of(NewFault(7))[1] == "etcdserver: requested lease not found"
