"""Load on a ZooKeeper server from the cheapest client that Python allows, and what it does to both.

    python -m bench.zookeeper_load HOST:PORT --op getData --connections 16 --in-flight 16 --seconds 5

Every connection keeps so many requests in flight: for each reply it sends the next request at once.
The requests are encoded beforehand as a ring, of which any run is a slice; a connection is answered in
the order in which it asked, so the ring says as well how long each reply is and how it begins.  What is
left to do for a reply is to compare its length, xid and err.  Sockets are polled here and not by an
event loop, so that a request goes out before the next socket is read, not at the end of a turn.

Invariants
    * Every reply is checked; the first that is not what the ring says ends the run with an error.
    * Only replies within the measured time count.  Latency is from just before a request is handed to
      the kernel to just after its reply was read.
    * Afterwards every session is closed and every node is gone that the load made.
"""

from __future__ import annotations

import argparse
import functools
import gc
import os
import select
import socket
import struct
import time
from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import psutil

from bench.results import count, duration
from bench.spending import Meter, no_meter
from bench.zookeeper_frames import HEADER, Session, frame, parse_address, sessions, sync_all
from bench.zookeeper_operations import OPERATIONS, Exchange, Operation

__all__ = ["Load", "load", "load_all", "processor_s"]

_RAMP_S = 0.2
_TICK_S = 0.01  # how finely the kernel counts processor time
_STALLED_S = 10.0
# Not more: memory that the allocator has to ask the system for makes a read ten times as dear.
_RECEIVE_BYTES = 1 << 16
_IN_FLIGHT_BYTES_MAX = 1 << 17
_RING_MIN = 64


@dataclass(frozen=True, slots=True)
class Load:
    """What came of one run.  Shares are of one processor: 2.0 is two processors, busy all the time."""

    rate: float
    median_s: float
    p99_s: float
    generator_share: float
    server_share: float
    machine_share: float  # everybody's, the kernel's part for nobody included

    @property
    def server_s_per_1000(self) -> float:
        """Seconds of the server's processor time for 1,000 operations."""
        return 1000 * self.server_share / self.rate

    @property
    def rate_per_server_s(self) -> float:
        """Operations for each second of the server's processor time."""
        return self.rate / self.server_share


def load(
    address: tuple[str, int],
    operation: Operation,
    *,
    connections: int,
    in_flight: int,
    seconds: float,
    pid: int | None = None,
) -> Load:
    """Do one operation for so long.  Only who names the server's `pid` is told what it took there."""
    spent = no_meter if pid is None else functools.partial(processor_s, pid)
    return load_all(
        [address], operation, connections=connections, in_flight=in_flight, seconds=seconds, spent=spent
    )


def load_all(
    addresses: Sequence[tuple[str, int]],
    operation: Operation,
    *,
    connections: int,
    in_flight: int,
    seconds: float,
    spent: Meter = no_meter,
) -> Load:
    """The same on servers that hold one tree; connections go to them in turn."""
    with Session.open(addresses[0]) as keeper:
        operation.prepare(keeper, connections=connections)
        sync_all(addresses[1:])
        with sessions(addresses, connections) as opened:
            links = [
                _Link(session, _ring(operation.exchanges(number, in_flight), in_flight), in_flight)
                for number, session in enumerate(opened)
            ]
            measured = _measure(links, seconds, spent)
        operation.clear(keeper, answered_count=sum(link.answered_count for link in links))
    return measured


def processor_s(pid: int) -> float:
    """Processor time of a process and of those it started, in user and in system mode."""
    process = psutil.Process(pid)
    times = [each.cpu_times() for each in (process, *process.children(recursive=True))]
    return sum(each.user + each.system for each in times)


def _machine_s() -> float:
    """Processor time of everything on this machine."""
    times = psutil.cpu_times()
    # A guest's time is part of user time already.
    return times.user + times.nice + times.system + times.irq + times.softirq


# -- the ring


@dataclass(frozen=True, slots=True)
class _Ring:
    """What a connection asks again and again, written twice, so that any turn is one slice."""

    size: int
    requests: bytes
    request_at: Sequence[int]
    reply_at: Sequence[int]
    reply_heads: Sequence[bytes]  # length and xid


def _ring(cycle: Sequence[Exchange], in_flight: int) -> _Ring:
    times = -(-max(in_flight, _RING_MIN) // len(cycle))
    exchanges = list(cycle) * times
    requests, heads, request_at, reply_at = [], [], [0], [0]
    for xid, exchange in [*enumerate(exchanges, 1)] * 2:
        request = frame(exchange.xid or xid, exchange.op, exchange.body)
        reply_bytes = HEADER.size + exchange.reply_body_bytes
        requests.append(request)
        heads.append(HEADER.pack(reply_bytes - 4, exchange.xid or xid, 0, 0)[:8])
        request_at.append(request_at[-1] + len(request))
        reply_at.append(reply_at[-1] + reply_bytes)
    if in_flight * max(map(len, requests)) > _IN_FLIGHT_BYTES_MAX:
        raise ValueError(
            f"{in_flight} requests in flight are more than {_IN_FLIGHT_BYTES_MAX} bytes, "
            "which a socket may not take at once; ask for fewer or smaller ones"
        )
    return _Ring(len(exchanges), b"".join(requests), request_at, reply_at, heads)


# -- one connection


class _Link:
    """A connection on its way around the ring.

    Everything that a reply needs is an attribute here, because this is where the generator spends its
    time.  `sent` holds when requests went out, and how many.
    """

    __slots__ = (
        "_first",
        "_next",
        "_reply_at",
        "_reply_heads",
        "_request_at",
        "_requests",
        "_rest",
        "_ring_size",
        "_send",
        "answered_count",
        "in_flight",
        "recv",
        "sent",
        "socket",
    )

    def __init__(self, session: Session, ring: _Ring, in_flight: int) -> None:
        self.socket = session.socket
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * _IN_FLIGHT_BYTES_MAX)
        self.recv, self._send = self.socket.recv, self.socket.send
        self.in_flight = in_flight
        self.answered_count = 0
        self.sent: deque[tuple[float, int]] = deque()
        self._ring_size = ring.size
        self._requests, self._request_at = ring.requests, ring.request_at
        self._reply_at, self._reply_heads = ring.reply_at, ring.reply_heads
        self._first = 0  # where in the ring the oldest request is that waits for its reply
        self._next = 0  # where the next one is that goes out
        self._rest = b""

    def send(self, number: int) -> None:
        first = self._next
        requests = self._requests[self._request_at[first] : self._request_at[first + number]]
        self.sent.append((time.perf_counter(), number))
        if self._send(requests) != len(requests):
            raise RuntimeError("a socket took only part of the requests in flight; ask for fewer")
        self._next = (first + number) % self._ring_size

    def receive(self, data: bytes, *, send: bool) -> int:
        """Take what was read; returns how many replies that completes."""
        if not data:
            raise ConnectionError("the server hung up during the load")
        if self._rest:
            data = self._rest + data
        first, reply_at = self._first, self._reply_at
        start = reply_at[first]
        number = bisect_right(reply_at, start + len(data), first) - 1 - first
        self._rest = data[reply_at[first + number] - start :]
        if send and number:
            self.send(number)  # before anything else: the server need not wait for our checks
        self._check(data, first, number)
        self._first = (first + number) % self._ring_size
        self.answered_count += number
        return number

    def _check(self, data: bytes, first: int, number: int) -> None:
        """Each whole reply, and the next if it begins: an error is shorter than what we wait for."""
        reply_at, heads = self._reply_at, self._reply_heads
        start = reply_at[first]
        for index in range(first, first + number):
            at = reply_at[index] - start
            # An error code is small and negative, so its last byte tells.
            if data[at : at + 8] != heads[index] or data[at + 19]:
                raise self._surprise(data, at, heads[index])
        if self._rest:
            head = heads[first + number]
            if len(self._rest) >= HEADER.size and not self._rest.startswith(head):
                raise self._surprise(self._rest, 0, head)

    def _surprise(self, data: bytes, at: int, head: bytes) -> RuntimeError:
        length, xid, _, error = HEADER.unpack_from(data, at)
        expected_length, expected_xid = struct.unpack(">ii", head)
        return RuntimeError(
            f"after at least {self.answered_count} good replies one has xid {xid}, error {error} and "
            f"{length} bytes; xid {expected_xid}, no error and {expected_length} bytes were expected"
        )

    def drain(self) -> None:
        """Wait for the replies that are still on their way."""
        waiting = sum(number for _, number in self.sent)
        self.socket.settimeout(_STALLED_S)
        while waiting:
            waiting -= self.receive(self.recv(_RECEIVE_BYTES), send=False)


# -- the run


@dataclass(slots=True)
class _Latencies:
    """How long replies took: a time, and how many took that long."""

    took_s: array[float] = field(default_factory=lambda: array("d"))
    numbers: array[int] = field(default_factory=lambda: array("L"))

    @property
    def count(self) -> int:
        return sum(self.numbers)

    def quantiles(self, *parts: float) -> list[float]:
        """The times within which these parts of all replies came."""
        rows = sorted(zip(self.took_s, self.numbers, strict=True))
        found: list[float] = []
        seen, total = 0, self.count
        for took_s, number in rows:
            seen += number
            while len(found) < len(parts) and seen >= parts[len(found)] * total:
                found.append(took_s)
        return found


def _measure(links: Sequence[_Link], seconds: float, spent: Meter) -> Load:
    by_descriptor = {link.socket.fileno(): link for link in links}
    collecting = gc.isenabled()
    gc.disable()  # nothing here makes cycles
    try:
        with select.epoll(len(links)) as poll:
            for link in links:
                link.socket.setblocking(False)
                poll.register(link.socket, select.EPOLLIN)
                link.send(link.in_flight)
            _drive(poll, by_descriptor, time.perf_counter() + _RAMP_S)
            their_s = spent()
            started, own_s, all_s = time.perf_counter(), time.process_time(), _machine_s()
            latencies = _drive(poll, by_descriptor, started + seconds)
            took_s = time.perf_counter() - started
            own_s, all_s = time.process_time() - own_s, _machine_s() - all_s
            their_s = 0.0 if spent is no_meter else max(spent() - their_s, _TICK_S)
        for link in links:
            link.drain()
    finally:
        if collecting:
            gc.enable()
    median_s, p99_s = latencies.quantiles(0.5, 0.99)
    return Load(
        rate=latencies.count / took_s,
        median_s=median_s,
        p99_s=p99_s,
        generator_share=own_s / took_s,
        server_share=their_s / took_s,
        machine_share=all_s / took_s,
    )


def _drive(poll: select.epoll, links: Mapping[int, _Link], until: float) -> _Latencies:
    """Read, answer with the next requests, note how long it took; until the time has come."""
    latencies = _Latencies()
    note_time, note_number = latencies.took_s.append, latencies.numbers.append
    now = last_reply = time.perf_counter()
    while now < until:
        for descriptor, _ in poll.poll(0.5):
            link = links[descriptor]
            data = link.recv(_RECEIVE_BYTES)
            last_reply = now = time.perf_counter()
            number = link.receive(data, send=True)
            while number:
                sent_at, sent = link.sent[0]
                taken = min(number, sent)
                note_time(now - sent_at)
                note_number(taken)
                number -= taken
                if taken == sent:
                    link.sent.popleft()
                else:
                    link.sent[0] = sent_at, sent - taken
        now = time.perf_counter()
        if now - last_reply > _STALLED_S:
            raise TimeoutError(f"no reply for {_STALLED_S:.0f} s")
    return latencies


# -- the command line


def main() -> None:
    options = _options()
    done = load(
        parse_address(options.address),
        OPERATIONS[options.op](options.size),
        connections=options.connections,
        in_flight=options.in_flight,
        seconds=options.seconds,
        pid=options.pid,
    )
    print(f"rate       {count(done.rate)}/s")
    print(f"p50        {duration(done.median_s)}")
    print(f"p99        {duration(done.p99_s)}")
    print(f"generator  {done.generator_share:.0%} of a processor")
    print(f"machine    {done.machine_share:.0%} of a processor, of {os.cpu_count()}")
    if options.pid:
        print(f"server     {done.server_share:.0%} of a processor")
        print(f"           {duration(done.server_s_per_1000)} of it for 1,000 operations")
        print(f"           {count(done.rate_per_server_s)} operations for each second of it")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.zookeeper_load", description="Put load on a ZooKeeper server."
    )
    parser.add_argument("address", metavar="HOST:PORT")
    parser.add_argument("--op", choices=OPERATIONS, default="getData")
    parser.add_argument("--size", type=int, default=100, help="bytes of data in a node")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--in-flight", type=int, default=1, help="requests of each connection")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--pid", type=int, help="the server's process, to see what it takes there")
    return parser.parse_args()


if __name__ == "__main__":
    main()
