"""Calls that want a leader: metadata `hasleader: true`, which etcd's clients send to learn of a loss.

A watch or a stream of keep-alives goes on in silence when the cluster has no leader.  A client that
wants to know (`clientv3.WithRequireLeader`) says so, and gets UNAVAILABLE "etcdserver: no leader":
at once if there is none when it calls, and as soon as there is none while its stream runs.

    leadership = Leadership(store)
    methods = {path: leadership.guarded(method) for path, method in methods.items()}

Differs from etcd: how long a leader must be missing before streams end is the store's to judge, by
whether it serves; etcd waits for three election timeouts.  A server that stands on no cluster always
leads.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from quoracy.faces.etcd.answer import Answer, Caller
from quoracy.faces.etcd.methods import Method, Send, Streaming, Unary
from quoracy.faces.etcd.services.member import NO_LEADER
from quoracy.store.api import Store
from quoracy.wire.grpc import GrpcError, StatusCode
from quoracy.wire.protobuf import Message

__all__ = ["WANTS_LEADER", "Leadership"]

# The name and the value are etcd's.  [api/v3rpc/rpctypes/md.go]
WANTS_LEADER = (b"hasleader", b"true")


class Leadership:
    """Whether there is a leader, and the streams that end when there is none."""

    def __init__(self, store: Store) -> None:
        self._cluster = store.cluster
        self._wanting: set[Callable[[], None]] = set()
        self._unsubscribe = (
            None if self._cluster is None else self._cluster.on_serving(self._serving_changed)
        )

    def close(self) -> None:
        if self._unsubscribe is not None:
            self._unsubscribe()

    @property
    def has_leader(self) -> bool:
        return self._cluster is None or self._cluster.health().is_serving

    def guarded(self, method: Method) -> Method:
        """The method as it is for calls that want a leader."""
        if self._cluster is None:
            return method
        return self._unary(method) if isinstance(method, Unary) else self._streaming(method)

    def _unary(self, method: Unary) -> Method:
        def begin(payload: bytes, call: Caller) -> Answer:
            self._check()
            return method.begin(payload, call)

        return dataclasses.replace(method, begin=begin)

    def _streaming(self, method: Streaming[Any, Any]) -> Method:
        async def handle(requests: AsyncIterator[Message], send: Send[Any]) -> None:
            async with self._wanted():
                await method.handle(requests, send)

        return dataclasses.replace(method, handle=handle)

    def _check(self) -> None:
        if not self.has_leader:
            raise _no_leader()

    @asynccontextmanager
    async def _wanted(self) -> AsyncIterator[None]:
        """Ends the block with an error when the leader is lost."""
        self._check()
        task = asyncio.current_task()
        assert task is not None
        is_lost = False

        def lose() -> None:
            nonlocal is_lost
            if not is_lost:
                is_lost = True
                task.cancel()

        self._wanting.add(lose)
        try:
            yield
        except asyncio.CancelledError:
            # A client that gave up at the same time cancelled as well, and gets no status.
            if is_lost and task.uncancel() == 0:
                raise _no_leader() from None
            raise
        finally:
            self._wanting.discard(lose)

    def _serving_changed(self, is_serving: bool) -> None:
        if not is_serving:
            for lose in list(self._wanting):
                lose()


def _no_leader() -> GrpcError:
    return GrpcError(StatusCode.UNAVAILABLE, NO_LEADER)
