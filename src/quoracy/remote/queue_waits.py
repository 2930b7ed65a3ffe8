"""Waiting for the front of a queue on the server's side, where the server offers that.

The wait is a call that is answered once (`quoracy.v1.Queue/WaitFirst`).  It changes nothing: lost with
its connection it is made again, given up it is over.  Measured with twenty who wait: from a release
until the next one holds the lock takes a quarter less than with a watch and a read from here.

Invariants
    * Waits take `WAITS_MAX` of a connection's streams at most: there is always one left for the request
      that ends somebody else's wait.  Who comes later watches, as on an etcd.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from quoracy.errors import Unsupported
from quoracy.remote.dial import Channel
from quoracy.remote.error_mapping import error_of
from quoracy.remote.first_waits import FirstWait
from quoracy.remote.requests import Asking, Kind
from quoracy.remote.translate import revision_of
from quoracy.store.api import Store
from quoracy.store.contention import Place
from quoracy.store.legacy import TellsQueues
from quoracy.store.model import Revision
from quoracy.wire.grpc import GrpcError, StatusCode
from quoracy.wire.quoracy import WAIT_FIRST, WaitFirstRequest, WaitFirstResponse

__all__ = ["WAITS_MAX", "BeginsWaits", "QueueWaits", "Told", "told_first"]

WAITS_MAX = 256


@runtime_checkable
class BeginsWaits(Protocol):
    """A store that tells when a place is the first of its queue, as long as all is well."""

    def begin_wait(
        self, name: bytes, key: bytes, token: int, told: asyncio.Future[bool]
    ) -> Callable[[], None] | None:
        """Tell later whether it is the first; False: who wants to know must ask (`wait_first`).

        What is returned gives it up.  None: this cannot be told now.
        """
        ...


def told_first(store: Store, place: Place) -> Told | None:
    """Done when the place is the first of its queue: True; False or None: `wait_first` must be asked.

    To be awaited at once; cancelled, the wait is given up.  (Between the answer of the server and the
    one who waits for it there are five coroutines less than with `wait_first`.)
    """
    told = Told()
    if isinstance(store, BeginsWaits):
        told.give_up = store.begin_wait(place.name, place.key, place.token, told)
    elif isinstance(store, TellsQueues):
        told.give_up = store.when_oldest(
            place.name, place.key, place.token, lambda seen, _: told.tell(seen is not None)
        )
    return None if told.give_up is None else told


class Told(asyncio.Future[bool]):
    """`give_up` is called when it is cancelled, or ended with an error."""

    give_up: Callable[[], None] | None = None

    def tell(self, is_first: bool) -> None:
        if not self.done():
            self.set_result(is_first)

    def end(self, error: BaseException) -> None:
        """Whoever waits need not wait any more, for this reason."""
        if not self.done():
            if self.give_up is not None:
                self.give_up()
            self.set_exception(error)
            self.exception()  # who waited may be cancelled in this same turn, and not look at it

    def cancel(self, msg: object = None) -> bool:
        if self.give_up is not None and not self.done():
            self.give_up()
        return super().cancel(msg)


class QueueWaits:
    """The waits of one store, and whether its server knows them."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._is_unknown = False  # to the server; it said so

    def begin_wait(
        self, name: bytes, key: bytes, token: int, told: asyncio.Future[bool]
    ) -> Callable[[], None] | None:
        """See `BeginsWaits`."""
        channel = self._asking.channel_now
        if channel is None or self._is_unknown or channel.waits_count >= WAITS_MAX:
            return None
        call = channel.begin_wait(
            WAIT_FIRST,
            WaitFirstRequest(name=name, key=key, token=token).encode(),
            token=self._asking.signing_in.token,
            called=FirstWait(told, self._failed),
        )
        return None if call is None else lambda: channel.give_up(call)

    def _failed(self, error: BaseException | None) -> None:
        # Whatever else went wrong, asking again shows it.
        if isinstance(error, GrpcError) and error.code is StatusCode.UNIMPLEMENTED:
            self._is_unknown = True

    async def wait_first(self, name: bytes, key: bytes, token: int) -> Revision | None:
        """See `store.api.KnowsQueues`."""
        what = f"wait of {key!r} for the front of its queue"
        current = self._asking.endpoints.current
        if self._is_unknown or (current is not None and current.waits_count >= WAITS_MAX):
            raise Unsupported(
                f"{what}: not by this server, or not for so many. Watch the one before it."
            )
        payload = WaitFirstRequest(name=name, key=key, token=token).encode()

        async def once(channel: Channel, auth_token: str | None, deadline: float) -> bytes:
            del deadline  # there is none
            return await channel.wait(WAIT_FIRST, payload, token=auth_token)

        try:
            answer = await self._asking.ask_by(once, Kind.READ, what, timeout_s=math.inf)
        except GrpcError as error:
            if error.code is not StatusCode.UNIMPLEMENTED:
                raise error_of(error, what, write=False) from error
            self._is_unknown = True
            raise Unsupported(f"{what}: this server does not offer it.") from error
        response = WaitFirstResponse.decode(answer)
        return None if response.is_gone else revision_of(response.header)
