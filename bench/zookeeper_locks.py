"""kazoo's own lock: how often clients get it and give it back, alone or wanting it all at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack

from kazoo.client import KazooClient

from bench.spending import Cycles, Meter, no_meter

__all__ = ["lock_cycles", "lock_cycles_rate"]

_PATH = "/bench-lock"


def lock_cycles_rate(address: tuple[str, int], *, clients: int, seconds: float) -> float:
    """Acquisitions (each with its release) a second by all clients together, which are threads here.

    Much of what it measures is kazoo; the server's part is a create, getChildren, delete and, among
    several clients, a watch for each cycle.
    """
    return lock_cycles([address], clients=clients, seconds=seconds).rate


def lock_cycles(
    addresses: Sequence[tuple[str, int]], *, clients: int, seconds: float, spent: Meter = no_meter
) -> Cycles:
    """The same on servers that hold one tree; clients go to them in turn."""
    with ExitStack() as stack:
        connected = []
        for at in range(clients):
            host, port = addresses[at % len(addresses)]
            client = KazooClient(hosts=f"{host}:{port}", timeout=30)
            client.start()
            stack.callback(client.close)
            stack.callback(client.stop)
            connected.append(client)
        connected[0].ensure_path(_PATH)
        done: list[int] = []
        spent_s, started = spent(), time.perf_counter()
        threads = [
            threading.Thread(
                target=lambda client=client: done.append(_cycles(client, until=started + seconds)),
            )
            for client in connected
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        spent_s, took_s = spent() - spent_s, time.perf_counter() - started
    if len(done) != clients:
        raise RuntimeError(f"{clients - len(done)} of {clients} clients failed; their errors are above")
    return Cycles(rate=sum(done) / took_s, spent_s=spent_s / sum(done))


def _cycles(client: KazooClient, *, until: float) -> int:
    lock = client.Lock(_PATH)
    done = 0
    while time.perf_counter() < until:
        with lock:
            done += 1
    return done
