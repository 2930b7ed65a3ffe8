"""Writes without a task: begun in the call, answered by a call.

For a node that passes on thousands of writes a second.  Only the way of a write that succeeds is here,
and what is told of one whose outcome is not known.  Whatever surely did not happen is handed back as
`NotApplied`: to be asked again the long way (`Asking`), which knows what to do about it.

Measured, at 100 clients of a node's etcd face: 125 us of the node's processor for a put instead of 168.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeAlias

from quorate.client.asking import Asking
from quorate.client.calls import OnAnswer
from quorate.client.details import describe
from quorate.client.faults import Reason, error_of, indeterminate, reason_of
from quorate.client.losses import AnswerUnreadable, CallLost
from quorate.client.quick import read_put, read_txn
from quorate.client.translate import put_request, txn_payload
from quorate.errors import ProtocolError, QuorateError, StoreClosed
from quorate.store.model import Put, PutResult, Txn, TxnResult
from quorate.wire.grpc import GrpcError

__all__ = ["Beginning", "NotApplied", "OnResult"]

_PUT = "/etcdserverpb.KV/Put"
_TXN = "/etcdserverpb.KV/Txn"

OnResult: TypeAlias = Callable[[Any, BaseException | None], None]


class NotApplied(QuorateError):
    """The write did not happen, and may be asked for again."""


class Beginning:
    """Begins writes on the connection there is."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._loop = asyncio.get_running_loop()

    def begin(self, op: Put | Txn, on_result: OnResult) -> bool:
        """Send it; `on_result` gets the result, `NotApplied`, or `Indeterminate`, after this returned.

        False: there is no connection at the moment, and nothing was done.
        """
        asking = self._asking
        channel = asking.channel_now
        if channel is None:
            return False
        if isinstance(op, Put):
            path, payload = _PUT, put_request(op).encode()
        else:
            path, payload = _TXN, txn_payload(op)
        channel.begin(
            path,
            payload,
            timeout_s=asking.timeout_s,
            token=asking.signing_in.token,
            on_answer=_answered(op, on_result),
        )
        return True


def _answered(op: Put | Txn, on_result: OnResult) -> OnAnswer:
    def answered(answer: bytes | None, error: BaseException | None) -> None:
        if answer is None:
            assert error is not None
            on_result(None, _outcome(op, error))
            return
        result: PutResult | TxnResult
        try:
            result = read_put(answer) if isinstance(op, Put) else read_txn(answer)
        except ProtocolError as broken:
            on_result(None, indeterminate(describe(op), str(broken)))
            return
        on_result(result, None)

    return answered


def _outcome(op: Put | Txn, error: BaseException) -> BaseException:
    if isinstance(error, GrpcError):
        if reason_of(error) is Reason.UNSURE:
            return error_of(error, describe(op), write=True)
        return NotApplied(error.message)
    if isinstance(error, CallLost):
        if error.left or isinstance(error, AnswerUnreadable):
            return indeterminate(describe(op), str(error))
        return NotApplied(str(error))
    if isinstance(error, StoreClosed):
        return error
    return NotApplied(str(error))
