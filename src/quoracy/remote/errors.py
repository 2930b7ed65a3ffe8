"""How a request can fail: the connection's errors, and a server's refusals as Quoracy's errors.  Pure.

etcd's texts are part of its API: its own clients tell errors apart by them, and so does the table here.
A text that is not in it is judged by its status code; a write whose status cannot be judged is not
called "not applied".

The wire says less than our errors do: not which key, nor which revision is the oldest kept.  `Reason`
is what the wire says; `refusals` fills in the rest, from the request and, where it must, by asking.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from quoracy.errors import (
    Indeterminate,
    InvalidRequest,
    NoSpace,
    Overloaded,
    QuoracyError,
    Rejected,
    TooLarge,
    Unavailable,
    Unsupported,
)
from quoracy.store.model import Keys, Op, Put, Range, Txn, WaitFirst
from quoracy.wire.grpc import GrpcError, StatusCode

__all__ = [
    "AnswerUnreadable",
    "CallLost",
    "DeadlinePassed",
    "NotReached",
    "QuotaUsedUp",
    "Reason",
    "RefusedAsTooLarge",
    "TooManyInFlight",
    "describe",
    "error_of",
    "indeterminate",
    "keys_read",
    "leases_named",
    "may_try_again",
    "ops_count",
    "puts_that_keep",
    "reason_of",
    "reason_of_text",
    "revisions_read",
]

_SHOWN_BYTES_MAX = 60


# -- the connection --------------------------------------------------------------------------


class CallLost(Unavailable):
    """A call got no answer.

    left: whether the request may have reached the server.  If not, nobody has carried it out, and it
        can safely be sent again.
    """

    def __init__(self, cause: str, *, left: bool) -> None:
        super().__init__(cause)
        self.cause, self.left = cause, left


class DeadlinePassed(CallLost):
    """There was no answer in time."""

    def __init__(self, timeout_s: float, *, left: bool = True) -> None:
        super().__init__(f"no answer within {timeout_s:.3g} s", left=left)


class NotReached(Unavailable):
    """No server could be reached; the message names each and why."""


class AnswerUnreadable(CallLost):
    """The answer is over our limit, or is none to this call: asking again does not help."""

    def __init__(self, cause: str) -> None:
        super().__init__(f"the answer cannot be used: {cause}", left=True)


class TooManyInFlight(Overloaded):
    """Too many requests, or too many bytes of them, wait for their answers."""

    def __init__(self, *, pending: int, pending_max: int, what: str) -> None:
        Unavailable.__init__(
            self,
            f"{pending:,} {what} wait to be sent or to be answered; the limit is {pending_max:,}. "
            "Ask for less at a time, or use more connections.",
        )
        self.pending, self.pending_max = pending, pending_max


# -- what a server says ----------------------------------------------------------------------


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


# -- what a request says ---------------------------------------------------------------------


def describe(op: Op | WaitFirst | str) -> str:
    """A request in a few words.

    >>> describe(Put(b"jobs/7", b"..."))
    "put of b'jobs/7'"
    """
    match op:
        case str():
            return op
        case Put():
            return f"put of {_short(op.key)}"
        case Range():
            return f"range of {_short(op.keys)}"
        case WaitFirst():
            return f"wait of {_short(op.key)} for the front of its queue"
        case Txn():
            first = next((inner for inner in op.then + op.otherwise), None)
            count = len(op.then) + len(op.otherwise)
            named = f" ({describe(first)}, ...)" if first is not None else ""
            return f"transaction of {count} operations{named}"
        case _:
            return f"delete of {_short(op.keys)}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_BYTES_MAX else text[:_SHOWN_BYTES_MAX] + "..."


def _operations(op: Op) -> Iterator[Op]:
    yield op
    if isinstance(op, Txn):
        for inner in op.then + op.otherwise:
            yield from _operations(inner)


def puts_that_keep(op: Op) -> list[bytes]:
    """The keys that must exist, since a put keeps their value or lease."""
    return [
        inner.key
        for inner in _operations(op)
        if isinstance(inner, Put) and (inner.ignore_value or inner.ignore_lease)
    ]


def leases_named(op: Op) -> list[int]:
    named = (inner.lease for inner in _operations(op) if isinstance(inner, Put) and inner.lease)
    return list(dict.fromkeys(named))


def keys_read(op: Op) -> Keys:
    """Keys that the request reads in the past, so that its user may read them."""
    return next(
        (inner.keys for inner in _operations(op) if isinstance(inner, Range) and inner.at is not None),
        b"\0",
    )


def revisions_read(op: Op) -> list[int]:
    return [inner.at for inner in _operations(op) if isinstance(inner, Range) and inner.at is not None]


def ops_count(op: Op) -> int:
    """The number of operations as servers count it: the longest list on the longest path."""
    if not isinstance(op, Txn):
        return 0
    here = max(len(op.compares), len(op.then), len(op.otherwise))
    return here + max((ops_count(inner) for inner in op.then + op.otherwise), default=0)
