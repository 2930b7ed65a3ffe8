"""`quoracy bench`: put load on a store and measure throughput and latency, over the Store contract."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import secrets
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable

import click

from quoracy.cli.endpoint import Endpoint, endpoint_options
from quoracy.cli.exits import Exit
from quoracy.cli.output import Column, Form, Output, output_options
from quoracy.cli.parameters import read_duration
from quoracy.errors import QuoracyError
from quoracy.store.api import Store
from quoracy.store.model import Compare, KeyRange, Put, Txn

__all__ = ["Latencies", "command"]

_KEYS = 1_000
_SHOW_S = 0.25
_QUANTILES = (0.5, 0.9, 0.99, 0.999)


class Latencies:
    """A histogram of latencies, exact to 1 %, in a few kilobytes however many there are.

    >>> latencies = Latencies()
    >>> for ms in range(1, 101): latencies.add(ms / 1000)
    >>> round(latencies.quantile(0.5) * 1000)
    50
    """

    _STEP = math.log(1.01)

    def __init__(self) -> None:
        self._buckets: Counter[int] = Counter()
        self.count, self.total_s, self.max_s = 0, 0.0, 0.0

    def add(self, seconds: float) -> None:
        self._buckets[round(math.log(max(seconds, 1e-9)) / self._STEP)] += 1
        self.count += 1
        self.total_s += seconds
        self.max_s = max(self.max_s, seconds)

    def quantile(self, fraction: float) -> float:
        """The latency that this fraction of all requests did not exceed."""
        wanted, seen = fraction * self.count, 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= wanted:
                return min(math.exp(bucket * self._STEP), self.max_s)
        return self.max_s


@click.command("bench")
@click.argument(
    "load", type=click.Choice(["put", "range", "txn", "lease"]), default="put", metavar="[LOAD]"
)
@click.option(
    "--clients",
    type=click.IntRange(1, 10_000),
    default=10,
    show_default=True,
    metavar="N",
    help="How many send requests at the same time, each the next one when it has its answer.",
)
@click.option(
    "--connections",
    type=click.IntRange(1, 1_000),
    default=1,
    show_default=True,
    metavar="N",
    help="How many connections the clients share.",
)
@click.option(
    "--seconds",
    type=read_duration,
    default="5s",
    show_default=True,
    metavar="TIME",
    help="For how long.",
)
@click.option(
    "--value-size",
    type=click.IntRange(0, 1_000_000),
    default=100,
    show_default=True,
    metavar="BYTES",
    help="How large values are.",
)
@output_options(Form.JSON)
@endpoint_options()
def command(
    load: str,
    clients: int,
    connections: int,
    seconds: float,
    value_size: int,
    output: Output,
    endpoint: Endpoint,
) -> int:
    """Put load on a store, and show how many requests it answered and how fast.

    \b
    LOAD is one of
      put    write one of 1,000 keys (the default)
      range  read one of 1,000 keys
      txn    compare a key's revision and write it, each client its own
      lease  grant a lease and revoke it

    Everything it writes is under one key prefix, quoracy-bench/ and a random name, and is deleted at
    the end; the revisions it used stay used.

    \b
    Examples:
      quoracy bench
      quoracy bench --clients 100 --seconds 10 range
      quoracy bench -e etcd://127.0.0.1:2379 txn -o json
    """
    from quoracy.server.runtime import run

    latencies, errors = Latencies(), Counter[str]()
    prefix = b"quoracy-bench/%b/" % secrets.token_hex(4).encode()
    connections = 1 if endpoint.is_embedded else min(connections, clients)

    async def measure() -> float:
        async with contextlib.AsyncExitStack() as stack:
            stores = [
                await stack.enter_async_context(endpoint.open(create=True)) for _ in range(connections)
            ]
            await stack.enter_async_context(_tidy(stores[0], prefix))
            works = [
                await _work(load, stores[number % connections], prefix, number, value_size)
                for number in range(clients)
            ]
            return await _run_load(works, seconds, latencies, errors)

    elapsed_s = run(measure())
    _show(output, load, clients, elapsed_s, latencies, errors)
    return Exit.FAILED if errors else Exit.DONE


@contextlib.asynccontextmanager
async def _tidy(store: Store, prefix: bytes) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await store.delete(KeyRange.prefix(prefix))


async def _work(
    load: str, store: Store, prefix: bytes, client: int, value_size: int
) -> Callable[[], Awaitable[object]]:
    """The request that one client repeats."""
    value = secrets.token_bytes(value_size)
    keys = [b"%b%06d" % (prefix, number) for number in range(_KEYS)]
    # Clients start at different keys; 617 and 1,000 have no common divisor, so each visits every key.
    numbers = itertools.count(client * 37, 617)
    if load == "put":
        return lambda: store.put(keys[next(numbers) % _KEYS], value)
    if load == "range":
        if client == 0:
            for key in keys:
                await store.put(key, value)
        return lambda: store.range(keys[next(numbers) % _KEYS])
    if load == "lease":

        async def lease() -> None:
            await store.revoke((await store.grant(60.0)).id)

        return lease
    own = b"%btxn/%06d" % (prefix, client)
    last = (await store.put(own, value)).revision

    async def swap() -> None:
        nonlocal last
        is_mine = Compare.mod_revision(own, "=", last)
        result = await store.txn(Txn((is_mine,), (Put(own, value),)))
        assert result.succeeded, "nobody else writes this key"
        last = result.revision

    return swap


async def _run_load(
    works: list[Callable[[], Awaitable[object]]],
    seconds: float,
    latencies: Latencies,
    errors: Counter[str],
) -> float:
    now = time.perf_counter
    started = now()
    until = started + seconds

    async def repeat(work: Callable[[], Awaitable[object]]) -> None:
        while (begun := now()) < until:
            try:
                await work()
            except QuoracyError as error:
                errors[str(error)] += 1
                await asyncio.sleep(0.01)  # do not spin if the store refuses at once
            else:
                latencies.add(now() - begun)

    progress = asyncio.ensure_future(_progress(latencies, started, seconds))
    try:
        await asyncio.gather(*(repeat(work) for work in works))
        return now() - started
    finally:
        progress.cancel()
        await asyncio.gather(progress, return_exceptions=True)


async def _progress(latencies: Latencies, started: float, seconds: float) -> None:
    """A status line on stderr, if it is a terminal."""
    if not sys.stderr.isatty():
        return
    counted, at = 0, started
    try:
        while True:
            await asyncio.sleep(_SHOW_S)
            now = time.perf_counter()
            rate = (latencies.count - counted) / (now - at)
            counted, at = latencies.count, now
            click.echo(f"\r{now - started:5.1f} of {seconds:g} s  {rate:10,.0f}/s ", nl=False, err=True)
    finally:
        click.echo("\r\x1b[K", nl=False, err=True)


def _show(
    output: Output,
    load: str,
    clients: int,
    elapsed_s: float,
    latencies: Latencies,
    errors: Counter[str],
) -> None:
    count = latencies.count
    figures = {f"p{fraction * 100:g}": latencies.quantile(fraction) for fraction in _QUANTILES}
    figures |= {"mean": latencies.total_s / max(count, 1), "max": latencies.max_s}
    if output.is_json:
        output.document(
            {
                "load": load,
                "clients": clients,
                "seconds": round(elapsed_s, 3),
                "requests": count,
                "requests_per_s": round(count / elapsed_s, 1),
                "latency_ms": {name: round(value * 1000, 3) for name, value in figures.items()},
                "errors": dict(errors),
            }
        )
        return
    rows = [
        ("load", f"{load}, {clients:,} clients, {elapsed_s:.1f} s"),
        ("requests", f"{count:,}"),
        ("rate", f"{count / elapsed_s:,.0f}/s"),
        *((name, f"{value * 1000:,.2f} ms") for name, value in figures.items()),
    ]
    output.table((Column("", "cyan"), Column("")), rows)
    for error, times in errors.most_common(3):
        click.echo(f"quoracy: {times:,} times: {error}", err=True)
