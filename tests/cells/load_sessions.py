"""Sessions that live for a while and then fall silent, each with an ephemeral node.

A session is kept alive by heartbeats at whichever node answers: when a connection is lost it goes on at
another.  Then its client says nothing any more: half of them leave the connection open, half are gone.
When the node went is told by whoever watches etcd itself; here is when the session was last heard.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass

from tests.cells.load import Ending, Settings
from tests.faults.zookeeper_client import EPHEMERAL, Expired, Lost, Session, ZkClient

_LIVES_AT_ONCE = 6
_TIMEOUTS_MS = (2000, 2500, 3000)
_PATIENCE_S = 1.0
_PAUSE_S = 0.05


@dataclass(slots=True)
class Life:
    """A session and its node: `tests.checkers.ephemerals.Ephemeral`, as far as its client knows."""

    path: str
    session: int
    timeout_s: float
    acked: float
    alive: float


class _Client:
    """One session after the other."""

    def __init__(self, number: int, settings: Settings) -> None:
        self._number, self._settings = number, settings
        self._rng = random.Random(f"{settings.seed} session {number}")
        self._nodes = 0
        self.lives: list[Life] = []

    async def run(self, ending: Ending) -> None:
        while not ending:
            timeout_ms = self._rng.choice(_TIMEOUTS_MS)
            client = await self._connect(timeout_ms, None, ending)
            if client is None:
                continue
            self._nodes += 1
            path = f"/eph/{self._number}-{self._nodes}"
            sent = time.monotonic()
            try:
                async with asyncio.timeout(_PATIENCE_S):
                    await client.create(path, b"", EPHEMERAL)
            except (Lost, TimeoutError):
                client.abort()
                continue  # whether there is a node is not known, nor for how long it was wanted
            timeout_s, now = client.session.timeout_ms / 1000, time.monotonic()
            life = Life(path, client.session.id, timeout_s, acked=sent, alive=now)
            self.lives.append(life)
            await self._live(client, life, ending)

    async def _live(self, client: ZkClient, life: Life, ending: Ending) -> None:
        until = time.monotonic() + self._rng.uniform(0.5, 5.0)
        session: Session = client.session
        silent: ZkClient | None = client
        while time.monotonic() < until and silent is not None and not ending:
            await asyncio.sleep(life.timeout_s / 3 * self._rng.uniform(0.5, 1.0))
            silent = await self._beat(silent, life, session, ending)
        if silent is None:
            return
        if ending or self._rng.random() < 0.5:
            silent.abort()
        else:
            await _hung_up(silent, life.timeout_s + 1.0)

    async def _beat(
        self, client: ZkClient, life: Life, session: Session, ending: Ending
    ) -> ZkClient | None:
        """The connection that goes on; None if there is no session to go on with."""
        sent = time.monotonic()
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await client.ping()
        except (Lost, TimeoutError):
            client.abort()
            life.alive = time.monotonic()
            return await self._connect(session.timeout_ms, (session, client.zxid, life), ending)
        # It was heard before it was answered, and after it was sent: whichever is the stricter.
        life.acked, life.alive = sent, time.monotonic()
        return client

    async def _connect(
        self, timeout_ms: int, again: tuple[Session, int, Life] | None, ending: Ending
    ) -> ZkClient | None:
        """At any node; for a session that exists, until it is there or known to be over."""
        while not ending:
            host, _, port = self._rng.choice(self._settings.zookeepers).partition(":")
            sent = time.monotonic()
            try:
                async with asyncio.timeout(_PATIENCE_S):
                    client = await ZkClient.connect(
                        int(port),
                        host=host,
                        timeout_ms=timeout_ms,
                        session=None if again is None else again[0],
                        zxid=0 if again is None else again[1],
                    )
            except Expired:
                assert again is not None, "a new session was refused as an old one"
                return None
            except (OSError, Lost):  # a TimeoutError is an OSError
                await asyncio.sleep(_PAUSE_S)
                continue
            finally:
                if again is not None:
                    again[2].alive = time.monotonic()
            if again is not None:
                again[2].acked = sent
            return client
        return None


async def _hung_up(client: ZkClient, within_s: float) -> None:
    """A server hangs up on a session that is over; one that was killed or stopped need not."""
    try:
        async with asyncio.timeout(within_s):
            await client.closed.wait()
    except TimeoutError:
        client.abort()


async def _make_directory(settings: Settings) -> None:
    """When the first host answers: the cell may be starting."""
    host, _, port = settings.zookeepers[0].partition(":")
    while True:
        try:
            first = await ZkClient.connect(int(port), host=host)
        except (OSError, Lost):
            await asyncio.sleep(_PAUSE_S)
            continue
        await first.create("/eph")
        await first.close()
        return


async def main(settings: Settings) -> None:
    ending = Ending()
    await _make_directory(settings)
    clients = [_Client(settings.clients_from + number, settings) for number in range(_LIVES_AT_ONCE)]
    settings.tell_ready()
    async with asyncio.TaskGroup() as group:
        for client in clients:
            group.create_task(client.run(ending))
    for client in clients:
        settings.write("lives", client.lives)


if __name__ == "__main__":
    asyncio.run(main(Settings.read()))
