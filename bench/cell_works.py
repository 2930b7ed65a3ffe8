"""What a system of three is asked, and what one run of each gives."""

from __future__ import annotations

import base64
import functools
import json
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from bench import etcd_locks, fan_out, h2load, zookeeper_crowd, zookeeper_load, zookeeper_locks
from bench.cell_systems import System
from bench.rounds import Settings, run
from bench.zookeeper_operations import OPERATIONS
from quoracy.wire.etcd import rpc

__all__ = ["Kind", "Run", "Work", "prepare_etcd", "warm_up_zookeeper", "works"]

# What is shown together, and what it is about: a rate, or how long one takes.
Kind = Literal["zookeeper", "etcd", "lock", "fan-out"]

_KEY, _VALUE = b"bench/key/0000000001", b"v" * 256
_NODE_BYTES = 100

_Shape = tuple[int, int]  # connections, requests in flight on each


@dataclass(frozen=True, slots=True)
class _Requests:
    """What the load generator calls it, in which shapes, and how long a Java program needs for it.

    By then what is hot is compiled; it is warmed up with 16 x 16, and everybody else for a second.
    """

    operation: str
    shapes: Sequence[_Shape]
    warm_up_s: int


_ZOOKEEPER: Mapping[str, _Requests] = {
    "getData": _Requests("getData", ((1, 1), (16, 1), (100, 1), (16, 16)), 7),
    "setData": _Requests("setData", ((1, 1), (16, 1), (100, 1), (16, 16)), 5),
    "create sequential": _Requests("createSequential", ((1, 1), (100, 1)), 2),
    "ephemeral create, delete": _Requests("ephemeral", ((1, 1), (100, 1)), 2),
}


@dataclass(frozen=True, slots=True)
class Run:
    """What came of one turn: how many a second, how long one took, and what it took of processors."""

    rate: float
    median_s: float
    spent_s: float


@dataclass(frozen=True, slots=True)
class Work:
    kind: Kind
    name: str
    peer: str
    run: Callable[[System, int], Run]  # with the number of the turn, which says who is asked first


def works(settings: Settings) -> Iterator[Work]:
    """Everything that is measured, in order."""
    seconds = 0.4 if settings.quick else 1.0
    for name, requests in _ZOOKEEPER.items():
        for shape in requests.shapes[:: 3 if settings.quick else 1]:
            connections, in_flight = shape
            load = functools.partial(_zookeeper, name=name, shape=shape, seconds=seconds)
            yield Work("zookeeper", f"{name}, {connections} x {in_flight}", "ZooKeeper", load)
    for name in _CALLS:
        for clients in (1, 100) if settings.quick else (1, 16, 100):
            call = functools.partial(_etcd, name=name, clients=clients, seconds=seconds)
            yield Work("etcd", f"{name}, {clients} client{'s'[: clients - 1]}", "etcd", call)
    for clients in (1, 5):
        who = "alone" if clients == 1 else f"wanted by {clients}"
        locks = functools.partial(_zookeeper_locks, clients=clients, seconds=seconds)
        yield Work("lock", f"kazoo's lock, {who}", "ZooKeeper", locks)
        locks = functools.partial(_etcd_locks, clients=clients, seconds=seconds)
        yield Work("lock", f"etcd's lock service, {who}", "etcd", locks)
    writes = 5 if settings.quick else 15
    for watchers in (100,) if settings.quick else (100, 1_000):
        tell = functools.partial(_zookeeper_fan_out, watchers=watchers, writes=writes)
        yield Work("fan-out", f"one setData to {watchers:,} watchers", "ZooKeeper", tell)
        tell = functools.partial(_etcd_fan_out, watchers=watchers, writes=writes)
        yield Work("fan-out", f"one put to {watchers:,} watchers", "etcd", tell)


# -- ZooKeeper's protocol


def warm_up_zookeeper(settings: Settings, system: System) -> Mapping[str, list[float]]:
    """Rates by the second."""
    rates: dict[str, list[float]] = {}
    for name, requests in _ZOOKEEPER.items():
        times = requests.warm_up_s if system.name == "ZooKeeper" else 1
        settings.report(f"cell: warming up {system.name}, {name}")
        load = functools.partial(_zookeeper, name=name, shape=(16, 16))
        rates[name] = [
            load(system, turn, seconds=0.3 if settings.quick else 1.0).rate
            for turn in range(1 if settings.quick else times)
        ]
    return rates


def _zookeeper(system: System, turn: int, *, name: str, shape: _Shape, seconds: float) -> Run:
    connections, in_flight = shape
    done = zookeeper_load.load_all(
        system.zookeepers(turn),
        OPERATIONS[_ZOOKEEPER[name].operation](_NODE_BYTES),
        connections=connections,
        in_flight=in_flight,
        seconds=seconds,
        spent=system.spent,
    )
    return Run(done.rate, done.median_s, done.server_s_per_1000 / 1000)


def _zookeeper_locks(system: System, turn: int, *, clients: int, seconds: float) -> Run:
    done = zookeeper_locks.lock_cycles(
        system.zookeepers(turn), clients=clients, seconds=seconds, spent=system.spent
    )
    return Run(done.rate, 1 / done.rate, done.spent_s)


def _zookeeper_fan_out(system: System, turn: int, *, watchers: int, writes: int) -> Run:
    told = zookeeper_crowd.fan_out(
        system.zookeepers(turn), watchers=watchers, writes=writes, spent=system.spent
    )
    return Run(1 / told.median_s, told.median_s, told.spent_s)


# -- etcd's protocol


@dataclass(frozen=True, slots=True)
class _Call:
    path: str
    message: bytes
    answer_bytes_min: int
    writes: bool = False


_CALLS: Mapping[str, _Call] = {
    "put": _Call(
        "/etcdserverpb.KV/Put", rpc.PutRequest(key=_KEY, value=_VALUE).encode(), 1, writes=True
    ),
    "range, linearizable": _Call(
        "/etcdserverpb.KV/Range", rpc.RangeRequest(key=_KEY).encode(), len(_KEY) + len(_VALUE)
    ),
    "range, serializable": _Call(
        "/etcdserverpb.KV/Range",
        rpc.RangeRequest(key=_KEY, serializable=True).encode(),
        len(_KEY) + len(_VALUE),
    ),
}


def prepare_etcd(system: System) -> None:
    """The key that is read."""
    put = {"key": base64.b64encode(_KEY).decode(), "value": base64.b64encode(_VALUE).decode()}
    _ask(system.etcd_ports[0], "/v3/kv/put", put)


def _etcd(system: System, turn: int, *, name: str, clients: int, seconds: float) -> Run:
    call, ports = _CALLS[name], system.etcds(turn)
    revision = _revision(ports[0])
    done = h2load.load_all(
        ports,
        call.path,
        call.message,
        clients=clients,
        seconds=seconds,
        answer_bytes_min=call.answer_bytes_min,
        spent=system.spent,
    )
    made = _revision(ports[0]) - revision
    if call.writes and made < done.count:
        raise RuntimeError(f"{system.name} answered {done.count} writes, and made {made} revisions")
    return Run(done.rate, done.median_s, done.server_share / done.rate)


def _revision(port: int) -> int:
    """The newest there is in the whole system."""
    answer = _ask(port, "/v3/kv/range", {"key": base64.b64encode(_KEY).decode(), "count_only": True})
    header = answer["header"]
    assert isinstance(header, dict)
    return int(header["revision"])


def _ask(port: int, path: str, question: Mapping[str, object]) -> Mapping[str, object]:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", data=json.dumps(question).encode(), method="POST"
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        said: Mapping[str, object] = json.load(answer)
    return said


def _etcd_locks(system: System, turn: int, *, clients: int, seconds: float) -> Run:
    done = run(
        etcd_locks.lock_cycles(system.etcds(turn), clients=clients, seconds=seconds, spent=system.spent)
    )
    return Run(done.rate, 1 / done.rate, done.spent_s)


def _etcd_fan_out(system: System, turn: int, *, watchers: int, writes: int) -> Run:
    told = run(fan_out.fan_out(system.etcds(turn), watchers=watchers, puts=writes, spent=system.spent))
    return Run(1 / told.median_s, told.median_s, told.spent_s)
