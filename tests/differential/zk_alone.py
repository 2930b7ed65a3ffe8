"""One server asked alone, for where the two do not agree."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.differential.zk_connection import Connected, Item, RawConnection
from tests.differential.zk_lockstep import Server
from tests.differential.zk_requests import Request, encode
from tests.differential.zk_seen import Seen
from tests.differential.zk_transcript import transcript

__all__ = ["Alone", "alone"]


class Alone:
    """A client of one server."""

    def __init__(self, server: Server) -> None:
        self._connection = RawConnection(server.name, server.port)

    def connect(
        self, *, session_id: int = 0, password: bytes = bytes(16), timeout_ms: int = 30_000
    ) -> Connected:
        answer = self._connection.connect(
            session_id=session_id, password=password, timeout_ms=timeout_ms
        )
        assert isinstance(answer, Connected)
        return answer

    def hears(self, *requests: Request) -> list[Item]:
        """All that came since the last time, after these requests."""
        self._connection.ask([(request, encode(request, lambda mark: 0)) for request in requests])
        self._connection.send_fence()
        return self._connection.fenced()

    def told_one_by_one(self, *requests: Request) -> list[str]:
        """As text, each asked when the one before is answered: what ends the server loses no other."""
        return [line for request in requests for line in self.told(request)]

    def told(self, *requests: Request) -> list[str]:
        """All that came since the last time, after these requests, as text."""
        seen = [
            (0, Seen(item, lambda id: "someone" if id else "nobody")) for item in self.hears(*requests)
        ]
        return [line.removeprefix("0 ") for line in transcript(seen).splitlines()]

    def close(self) -> None:
        self._connection.close()


@contextmanager
def alone(server: Server, *, connect: bool = True) -> Iterator[Alone]:
    client = Alone(server)
    try:
        if connect:
            client.connect()
        yield client
    finally:
        client.close()
