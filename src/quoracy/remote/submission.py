"""Operations sent in the call that begins them, and completed by their answers: no task for either.

    submit, read -> Submission.begin -> the connection -> Sent.answered -> Completion.done
                                 \\-- no connection, or not answered well --> unanswered (a task)

Only the way of an operation that succeeds is here.  `unanswered` is the store's: it sends again what
may be sent again, and finds out what a refusal leaves out.

Invariants
    * `done` is called once for each operation, after `begin` has returned.
    * Operations in flight are bounded by number and by bytes; beyond that they end with `Overloaded`.
    * Waits for the front of a queue take `WAITS_MAX` of a connection's streams at most: one is always
      left for the request that ends somebody else's wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from quoracy.errors import ProtocolError, QuoracyError, Unavailable
from quoracy.remote.calls import UnaryCall
from quoracy.remote.errors import TooManyInFlight, describe, indeterminate
from quoracy.remote.translate import (
    delete_request,
    delete_result,
    put_payload,
    range_request,
    read_put,
    read_range,
    read_txn,
    revision_of,
    txn_payload,
)
from quoracy.store.completion import Completion
from quoracy.store.model import (
    Delete,
    DeleteResult,
    Op,
    Put,
    PutResult,
    Range,
    RangeResult,
    Revision,
    TxnResult,
    WaitFirst,
)
from quoracy.store.rules import writes
from quoracy.wire.etcd import rpc
from quoracy.wire.etcd.fast_codec import decode_put_revision
from quoracy.wire.quoracy import WAIT_FIRST, WaitFirstRequest, WaitFirstResponse

if TYPE_CHECKING:
    from quoracy.remote.channel import Channel
    from quoracy.remote.requests import Requests

__all__ = ["PATH_RANGE", "Result", "Sent", "Submission", "is_read", "result_of", "unreadable"]

PATH_RANGE: Final = "/etcdserverpb.KV/Range"
_PUT: Final = "/etcdserverpb.KV/Put"
_DELETE: Final = "/etcdserverpb.KV/DeleteRange"
_TXN: Final = "/etcdserverpb.KV/Txn"

WAITS_MAX = 256
IN_FLIGHT_MAX = 100_000
IN_FLIGHT_BYTES_MAX = 256 * 1024 * 1024

Result: TypeAlias = PutResult | RangeResult | DeleteResult | TxnResult | Revision | None


class Submission:
    """The operations of one store that are in flight.

    unanswered: called with an operation that could not be sent, or whose attempt failed with an error.
    knows_queues: whether the server may know the procedure of `WaitFirst`; an etcd does not.
    """

    def __init__(
        self, requests: Requests, unanswered: Callable[[Sent, BaseException | None], None]
    ) -> None:
        self._requests, self.unanswered = requests, unanswered
        self._loop = asyncio.get_running_loop()
        self._count = self._bytes = 0
        self.knows_queues = True

    def begin(self, op: Op | WaitFirst, completion: Completion) -> None:
        """Send an operation that breaks no rule.  Raises what cannot be put into a request."""
        if isinstance(op, Put):
            path, payload = _PUT, put_payload(op)
        elif isinstance(op, Range):
            path, payload = PATH_RANGE, range_request(op).encode()
        elif isinstance(op, Delete):
            path, payload = _DELETE, delete_request(op).encode()
        elif isinstance(op, WaitFirst):
            path = WAIT_FIRST
            payload = WaitFirstRequest(name=op.name, key=op.key, token=op.token).encode()
        else:
            path, payload = _TXN, txn_payload(op)
        sent = Sent(self, op, path, payload, completion)
        if self._count >= IN_FLIGHT_MAX or self._bytes + len(payload) > IN_FLIGHT_BYTES_MAX:
            self._refuse(sent)
            return
        self._count += 1
        self._bytes += len(payload)
        # `Requests.channel_now`, without what the interpreter has to do for it.
        requests = self._requests
        authentication, channel = requests.authentication, requests.endpoints.latest
        if channel is None or not channel.usable or requests.closed or not authentication.ready:
            self.unanswered(sent, None)
            return
        token = authentication.token
        sent.channel, sent.token = channel, token
        if isinstance(op, WaitFirst):
            if self.begin_wait(sent, channel, token):
                completion.on_abandon = sent.abandon
            else:
                self.unanswered(sent, None)
            return
        channel.begin(sent, path, timeout_s=requests.timeout_s, token=token)
        if not sent.stream_id or isinstance(op, Range):
            completion.on_abandon = sent.abandon

    def begin_wait(self, call: UnaryCall, channel: Channel, token: str | None) -> bool:
        """Send a `WaitFirst`; False: the server does not know it, or has no room for another."""
        if not self.knows_queues or channel.waits_count >= WAITS_MAX:
            return False
        return channel.begin_wait(call, WAIT_FIRST, token=token)

    def note_over(self, sent: Sent) -> None:
        self._count -= 1
        self._bytes -= len(sent.payload)

    def _refuse(self, sent: Sent) -> None:
        if self._count >= IN_FLIGHT_MAX:
            error = TooManyInFlight(pending=self._count, pending_max=IN_FLIGHT_MAX, what="requests")
        else:
            error = TooManyInFlight(
                pending=self._bytes, pending_max=IN_FLIGHT_BYTES_MAX, what="bytes of requests"
            )
        self._loop.call_soon(sent.completion.done, None, error)


class Sent(UnaryCall):
    """One operation: the request, the connection it was sent on, and its completion."""

    __slots__ = ("_submission", "channel", "completion", "op", "path", "token")

    def __init__(
        self,
        submission: Submission,
        op: Op | WaitFirst,
        path: str,
        payload: bytes,
        completion: Completion,
    ) -> None:
        super().__init__(payload)
        self._submission = submission
        self.op, self.path, self.completion = op, path, completion
        self.channel: Channel | None = None
        self.token: str | None = None

    def answered(self, answer: bytes | None, error: BaseException | None) -> None:
        if answer is None:
            self._submission.unanswered(self, error)
            return
        result: Result
        try:
            result = result_of(self.op, answer)
        except ProtocolError as broken:
            self.finish(None, unreadable(self.op, broken))
            return
        self.finish(result, None)

    def finish(self, result: Result, error: BaseException | None) -> None:
        """The operation is over."""
        self._submission.note_over(self)
        completion = self.completion
        completion.on_abandon = None
        completion.done(result, error)

    def abandon(self) -> None:
        """End a read or a wait; a write only if it was not sent yet."""
        if self.is_over or (self.stream_id and not isinstance(self.op, Range | WaitFirst)):
            return
        self.is_over = True
        assert self.channel is not None
        self.channel.give_up(self)
        error = Unavailable(f"{describe(self.op)}: the caller gave it up.")
        asyncio.get_running_loop().call_soon(self.finish, None, error)


def result_of(op: Op | WaitFirst, answer: bytes) -> Result:
    """The result that an answer gives.  Raises `ProtocolError`."""
    if isinstance(op, Put):
        return read_put(answer)
    if isinstance(op, Range):
        return read_range(answer)
    if isinstance(op, Delete):
        return delete_result(rpc.DeleteRangeResponse.decode(answer))
    if isinstance(op, WaitFirst):
        seen = decode_put_revision(answer)  # mostly there is only a header
        if seen is not None:
            return Revision(seen)
        response = WaitFirstResponse.decode(answer)
        return None if response.is_gone else revision_of(response.header)
    return read_txn(answer)


def is_read(op: Op | WaitFirst) -> bool:
    """Whether carrying it out changes nothing."""
    if isinstance(op, WaitFirst):
        return True
    return not writes((op,))


def unreadable(op: Op | WaitFirst, broken: ProtocolError) -> QuoracyError:
    """The error of an operation whose answer breaks the protocol."""
    return broken if is_read(op) else indeterminate(describe(op), str(broken))
