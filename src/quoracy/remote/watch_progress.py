"""Proof of progress, for servers whose own word on it cannot be trusted.

Every revision changed at least one key.  So a watch of *all* keys that has told of revision R has told
of everything up to R, however the server delivers it; and what it told is what each watch still owes.
This costs reading all that changed since the furthest-behind watch, which is why servers that can be
trusted are asked instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from quoracy.errors import Rejected, Unavailable
from quoracy.remote.dial import Channel
from quoracy.remote.error_mapping import Reason, error_of, reason_of_text
from quoracy.remote.translate import by_revision, events_of, watch_request
from quoracy.remote.watch import RemoteWatch
from quoracy.store.model import KeyRange
from quoracy.wire.etcd import rpc
from quoracy.wire.grpc import GrpcError

__all__ = ["prove_progress"]


async def prove_progress(
    channel: Channel,
    watches: Sequence[RemoteWatch],
    newest: int,
    *,
    path: str,
    token: str | None,
    timeout_s: float,
) -> None:
    """Tell each watch what it has to receive before everything up to `newest` was delivered."""
    behind = {watch: 0 for watch in watches if watch.received < newest}
    if behind:
        since = min(watch.received for watch in behind)
        stream = channel.stream(path, token=token)
        create = watch_request(
            KeyRange.everything(), after=since, puts=True, deletes=True, prev_kv=False
        )
        stream.send_soon(rpc.WatchRequest(create_request=create).encode())
        try:
            async with asyncio.timeout(timeout_s):
                while not _note(rpc.WatchResponse.decode(await stream.receive()), behind, newest):
                    pass
        except TimeoutError as error:
            raise Unavailable(f"no proof of progress within {timeout_s:g} s") from error
        except GrpcError as error:
            raise error_of(error, "watch of all keys, for progress", write=False) from error
        finally:
            stream.cancel()
    for watch in watches:
        watch.on_proof(newest, owed=behind.get(watch, 0))


def _note(response: rpc.WatchResponse, behind: dict[RemoteWatch, int], newest: int) -> bool:
    """Note what one message shows; whether everything up to `newest` was seen."""
    if response.canceled:
        said = response.cancel_reason
        if reason_of_text(said) is Reason.DENIED:
            raise Rejected(
                f"progress cannot be told: {said}. This etcd (before 3.4.25, 3.5.8) tells it reliably "
                "only to those who may read all keys."
            )
        raise Unavailable(f"the watch of all keys ended: {said or response.compact_revision}")
    last = 0
    for revision, events in by_revision(events_of(response.events)):
        last = revision
        if revision > newest:
            return True
        for watch in behind:
            if any(watch.matches(event) for event in events):
                behind[watch] = revision
    return last >= newest and not response.fragment
