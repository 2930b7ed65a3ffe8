"""What a server's refusal means: the gRPC status and etcd's text, as Quoracy's errors.

etcd's texts are its API: its own clients tell errors apart by them, and so does this table.  A text it
does not know is judged by its status code; and whatever cannot be judged is not called "not applied".

The wire says less than our errors do (which key, which revision is the oldest).  `Reason` is what the
wire says; the store fills in the rest, from the request and, where it must, by asking.
"""

from __future__ import annotations

from enum import Enum

from quoracy.errors import (
    Indeterminate,
    InvalidRequest,
    NoSpace,
    QuoracyError,
    Rejected,
    TooLarge,
    Unavailable,
    Unsupported,
)
from quoracy.wire.grpc import GrpcError, StatusCode

__all__ = [
    "QuotaUsedUp",
    "Reason",
    "RefusedAsTooLarge",
    "error_of",
    "indeterminate",
    "may_try_again",
    "reason_of",
    "reason_of_text",
]


class Reason(Enum):
    """Why a request failed, as far as the wire tells."""

    KEY_NOT_FOUND = "key not found"
    DUPLICATE_KEY = "duplicate key"
    REQUEST_TOO_LARGE = "request too large"
    TOO_MANY_OPS = "too many operations"
    COMPACTED = "compacted"
    FUTURE_REVISION = "future revision"
    LEASE_NOT_FOUND = "lease not found"
    LEASE_EXISTS = "lease exists"
    NO_SPACE = "no space"
    INVALID = "invalid"
    TOKEN_STALE = "token stale"
    AUTH_OFF = "authentication is not enabled"
    DENIED = "denied"
    REFUSED = "refused"  # by a rule that has no error of its own here
    UNSUPPORTED = "unsupported"
    NOT_NOW = "not now"  # surely not applied; another server, or the same later, may take it
    UNSURE = "unsure"  # a read can be asked again; a write may have been applied


_BY_TEXT = {
    "etcdserver: key is not provided": Reason.INVALID,
    "etcdserver: key not found": Reason.KEY_NOT_FOUND,
    "etcdserver: value is provided": Reason.INVALID,
    "etcdserver: lease is provided": Reason.INVALID,
    "etcdserver: too many operations in txn request": Reason.TOO_MANY_OPS,
    "etcdserver: duplicate key given in txn request": Reason.DUPLICATE_KEY,
    "etcdserver: invalid sort option": Reason.INVALID,
    "etcdserver: mvcc: required revision has been compacted": Reason.COMPACTED,
    "etcdserver: mvcc: required revision is a future revision": Reason.FUTURE_REVISION,
    "etcdserver: mvcc: database space exceeded": Reason.NO_SPACE,
    "etcdserver: requested lease not found": Reason.LEASE_NOT_FOUND,
    "etcdserver: lease already exists": Reason.LEASE_EXISTS,
    "etcdserver: too large lease TTL": Reason.INVALID,
    "etcdserver: request is too large": Reason.REQUEST_TOO_LARGE,
    # Refused at the door: etcd says these before it proposes anything.
    "etcdserver: too many requests": Reason.NOT_NOW,
    "etcdserver: no leader": Reason.NOT_NOW,
    "etcdserver: not capable": Reason.NOT_NOW,
    "etcdserver: rpc not supported for learner": Reason.NOT_NOW,
    "etcdserver: not leader": Reason.NOT_NOW,
    # The request may be in the log, and the answer got lost inside the cluster.
    "etcdserver: leader changed": Reason.UNSURE,
    "etcdserver: server stopped": Reason.UNSURE,
    "etcdserver: request timed out": Reason.UNSURE,
    "etcdserver: request timed out, possibly due to previous leader failure": Reason.UNSURE,
    "etcdserver: request timed out, possibly due to connection lost": Reason.UNSURE,
    "etcdserver: request timed out, waiting for the applied index took too long": Reason.UNSURE,
    "etcdserver: unhealthy cluster": Reason.NOT_NOW,
    "etcdserver: corrupt cluster": Reason.UNSURE,
    "etcdserver: request canceled": Reason.UNSURE,
    "etcdserver: context deadline exceeded": Reason.UNSURE,
    "etcdserver: invalid auth token": Reason.TOKEN_STALE,
    "etcdserver: revision of auth store is old": Reason.TOKEN_STALE,
    "etcdserver: authentication is not enabled": Reason.AUTH_OFF,
    "etcdserver: authentication failed, invalid user ID or password": Reason.DENIED,
    "etcdserver: user name is empty": Reason.DENIED,
    "etcdserver: permission denied": Reason.DENIED,
}

_BY_CODE = {
    StatusCode.INVALID_ARGUMENT: Reason.INVALID,
    StatusCode.OUT_OF_RANGE: Reason.INVALID,
    StatusCode.NOT_FOUND: Reason.REFUSED,
    StatusCode.ALREADY_EXISTS: Reason.REFUSED,
    StatusCode.FAILED_PRECONDITION: Reason.REFUSED,
    StatusCode.PERMISSION_DENIED: Reason.DENIED,
    StatusCode.UNAUTHENTICATED: Reason.DENIED,
    StatusCode.UNIMPLEMENTED: Reason.UNSUPPORTED,
}

# What grpc-go says of a request it did not read because of its size.
_MESSAGE_TOO_LARGE = "grpc: received message larger than max"


def reason_of(error: GrpcError) -> Reason:
    known = _BY_TEXT.get(error.message)
    if known is not None:
        return known
    if error.code is StatusCode.RESOURCE_EXHAUSTED and error.message.startswith(_MESSAGE_TOO_LARGE):
        return Reason.REQUEST_TOO_LARGE
    return _BY_CODE.get(error.code, Reason.UNSURE)


def reason_of_text(text: str) -> Reason:
    """The same for a watch that was cancelled: etcd gives its text, sometimes inside a sentence."""
    for known, reason in _BY_TEXT.items():
        if text.endswith(known):
            return reason
    return Reason.REFUSED


def may_try_again(error: GrpcError) -> bool:
    """Whether a read that failed like this can succeed on another server, or here in a moment."""
    reason = reason_of(error)
    return reason is Reason.NOT_NOW or (
        reason is Reason.UNSURE and error.code is StatusCode.UNAVAILABLE
    )


class RefusedAsTooLarge(TooLarge):
    """A server said that something is too large; its limit is not known, only that it is less."""

    def __init__(self, what: str, *, size: int, setting: str) -> None:
        InvalidRequest.__init__(
            self,
            f"{what} is {size:,}, which the server refuses. Send less, or raise its limit ({setting}).",
        )
        self.what, self.size, self.size_max, self.setting = what, size, size - 1, setting


class QuotaUsedUp(NoSpace):
    """A server's quota is used up; what it does not tell, its size or the quota, is 0."""

    def __init__(self, *, size: int = 0, size_max: int = 0) -> None:
        Rejected.__init__(
            self,
            "the server's storage quota is used up, so it takes no new data. Delete keys and compact "
            "history (both still work), or raise its quota; an etcd also has to be defragmented, and "
            "its alarm disarmed.",
        )
        self.size, self.size_max = size, size_max


def error_of(error: GrpcError, what: str, *, write: bool) -> QuoracyError:
    """The error of a request, when its reason needs nothing filled in.

    `what` says which request it was; `write` whether it could have changed anything.
    """
    said = error.message or "nothing"
    match reason_of(error):
        case Reason.INVALID | Reason.DUPLICATE_KEY | Reason.KEY_NOT_FOUND | Reason.TOO_MANY_OPS:
            return InvalidRequest(f"{what}: the server refused it: {said}.")
        case Reason.NO_SPACE:
            return QuotaUsedUp()
        case Reason.REQUEST_TOO_LARGE:
            return InvalidRequest(f"{what}: the server refused it as too large: {said}.")
        case Reason.DENIED | Reason.TOKEN_STALE | Reason.AUTH_OFF:
            return Rejected(
                f"{what}: the server refused it: {said}. Check the user and the password "
                "(etcd://USER:PASSWORD@HOST), and what the user's roles allow."
            )
        case Reason.UNSUPPORTED:
            return Unsupported(f"{what}: the server does not offer it: {said}.")
        case Reason.NOT_NOW:
            return Unavailable(f"{what}: the server cannot take it now: {said}. Try again later.")
        case Reason.UNSURE if write:
            return indeterminate(what, f"the server answered {error.code.name}: {said}")
        case Reason.UNSURE:
            return Unavailable(f"{what}: the server answered {error.code.name}: {said}.")
        case _:
            return Rejected(f"{what}: the server refused it: {said}.")


def indeterminate(what: str, cause: str) -> Indeterminate:
    return Indeterminate(
        f"{what}: {cause}. It may have been applied, or not; it was not sent again. "
        "Read before you write again."
    )
