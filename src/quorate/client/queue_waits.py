"""Waiting for the front of a queue on the server's side, where the server offers that.

The wait is a call that is answered once (`quorate.v1.Queue/WaitFirst`).  It changes nothing: lost with
its connection it is made again, given up it is over.  Measured with twenty who wait: from a release
until the next one holds the lock takes a quarter less than with a watch and a read from here.

Invariants
    * Waits take `WAITS_MAX` of a connection's streams at most: there is always one left for the request
      that ends somebody else's wait.  Who comes later watches, as on an etcd.
"""

from __future__ import annotations

import math

from quorate.client.asking import Asking, Kind
from quorate.client.channel import Channel
from quorate.client.faults import error_of
from quorate.client.translate import revision_of
from quorate.errors import Unsupported
from quorate.store.model import Revision
from quorate.wire.grpc import GrpcError, StatusCode
from quorate.wire.quorate import WAIT_FIRST, WaitFirstRequest, WaitFirstResponse

__all__ = ["WAITS_MAX", "QueueWaits"]

WAITS_MAX = 256


class QueueWaits:
    """The waits of one store, and whether its server knows them."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._waits_count = 0
        self._is_unknown = False  # to the server; it said so

    async def wait_oldest(self, name: bytes, key: bytes, token: int) -> Revision | None:
        """See `store.api.KnowsQueues`."""
        what = f"wait of {key!r} for the front of its queue"
        if self._is_unknown or self._waits_count >= WAITS_MAX:
            raise Unsupported(
                f"{what}: not by this server, or not for so many. Watch the one before it."
            )
        payload = WaitFirstRequest(name=name, key=key, token=token).encode()

        async def once(channel: Channel, auth_token: str | None, deadline: float) -> bytes:
            del deadline  # there is none
            return await channel.wait(WAIT_FIRST, payload, token=auth_token)

        self._waits_count += 1
        try:
            answer = await self._asking.ask_by(once, Kind.READ, what, timeout_s=math.inf)
        except GrpcError as error:
            if error.code is not StatusCode.UNIMPLEMENTED:
                raise error_of(error, what, write=False) from error
            self._is_unknown = True
            raise Unsupported(f"{what}: this server does not offer it.") from error
        finally:
            self._waits_count -= 1
        response = WaitFirstResponse.decode(answer)
        return None if response.is_gone else revision_of(response.header)
