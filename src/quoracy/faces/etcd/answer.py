"""The answer to a unary call: the completion of its operation on the store, and the call itself.

Compiled: every call of a busy server has one.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

from quoracy.native import mypyc_attr
from quoracy.store.completion import Completion, Reply

__all__ = ["Answer", "Caller", "Metadata"]

# What an answer has beside its message: metadata in gRPC, HTTP headers at the gateway.  Names are in
# lower case, values printable ASCII.
Metadata: TypeAlias = tuple[tuple[bytes, bytes], ...]


class Caller(Protocol):
    """The call as it came, over gRPC or by the JSON gateway."""

    def done(self, answer: Answer, result: Any, error: BaseException | None) -> None:
        """End the call: with an error, or the answer to this result once the client takes it."""
        ...

    def reply(self, data: bytes) -> Reply | None:
        """A reply of this encoded message that may leave with the sync, if that is possible."""
        ...


@mypyc_attr(allow_interpreted_subclasses=True)
class Answer(Completion):
    """Encodes the result of one operation as the response to one call.

    This one takes a message for the result; subclasses take values of the store.

    cleans_up: what was begun has something to put right when it is abandoned, so a call that is
        cancelled ends with `done`.  Other calls end as soon as they are cancelled.
    """

    __slots__ = ("_call", "cleans_up")

    def __init__(self, call: Caller, cleans_up: bool = False) -> None:
        super().__init__()
        self._call = call
        self.cleans_up = cleans_up

    def encode(self, result: Any) -> bytes:
        data: bytes = result.encode()
        return data

    def metadata(self, result: Any) -> Metadata:
        del result
        return ()

    def reply(self, result: Any) -> Reply | None:
        return self._call.reply(self.encode(result))

    def done(self, result: Any, error: BaseException | None) -> None:
        self._call.done(self, result, error)
