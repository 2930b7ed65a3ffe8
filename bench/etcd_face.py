"""The etcd face next to a real etcd 3.5: the same clients, bytes and disk, taking turns."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

from bench.check_perf import Verdict, check_perf
from bench.fan_out import fan_out_s
from bench.h2load import Load, load
from bench.results import Section, Table, Target, count, duration, ratio, size
from bench.rounds import Settings, run
from bench.servers import Server, idle_bytes, serve_etcd, serve_quoracy
from quoracy.wire.etcd import rpc

__all__ = ["measure"]

_NOTE = """\
h2load with fixed bodies (a key of 20 bytes, a value of 256), every client with one connection and one
call at a time; both servers on the same disk and with durable writes, taking turns. Latencies are those
of the clients. Fan-out: from sending one put until the last of 1,000 watchers has its event, with the
watchers spread over 10 connections of one client. Memory is that of the process, when it was idle for
some seconds after its start (our server has then released what it does not need), and after all of
this."""

# 1,000 clients that want 15,000 writes a second together: more than etcd does here.
_CHECK_LOAD = "xl"

_KEY, _VALUE = b"bench/key/0000000001", b"v" * 256

_CALLS: Mapping[str, tuple[str, bytes]] = {
    "put": ("/etcdserverpb.KV/Put", rpc.PutRequest(key=_KEY, value=_VALUE).encode()),
    "range, linearizable": ("/etcdserverpb.KV/Range", rpc.RangeRequest(key=_KEY).encode()),
    "range, serializable": (
        "/etcdserverpb.KV/Range",
        rpc.RangeRequest(key=_KEY, serializable=True).encode(),
    ),
    "txn": (
        "/etcdserverpb.KV/Txn",
        rpc.TxnRequest(
            compare=[
                rpc.Compare(
                    result=rpc.CompareResult.GREATER,
                    target=rpc.CompareTarget.VERSION,
                    key=_KEY,
                    version=0,
                )
            ],
            success=[rpc.RequestOp(request_put=rpc.PutRequest(key=_KEY, value=_VALUE))],
            failure=[rpc.RequestOp(request_range=rpc.RangeRequest(key=_KEY))],
        ).encode(),
    ),
    "lease grant": ("/etcdserverpb.Lease/LeaseGrant", rpc.LeaseGrantRequest(TTL=600).encode()),
}


@dataclass(slots=True)
class _Both:
    """The runs of both servers, round by round."""

    etcd: list[Load] = field(default_factory=list)
    quoracy: list[Load] = field(default_factory=list)

    def pair(self, of: Callable[[Load], float]) -> tuple[float, float]:
        return statistics.median(map(of, self.etcd)), statistics.median(map(of, self.quoracy))

    def ratio(self, of: Callable[[Load], float]) -> float:
        return statistics.median(
            of(mine) / of(theirs) for mine, theirs in zip(self.quoracy, self.etcd, strict=True)
        )


def measure(settings: Settings) -> Section:
    clients = (1, 100) if settings.quick else (1, 16, 100, 500)
    with ExitStack() as stack:
        etcd = stack.enter_context(serve_etcd(settings.directory / "etcd"))
        quoracy = stack.enter_context(serve_quoracy(settings.directory / "quoracy.db"))
        idle = idle_bytes(settings, (etcd, quoracy))
        results = {
            (what, number): _compare(settings, what, number, etcd, quoracy)
            for what in _CALLS
            for number in clients
        }
        settings.report("etcd: fan-out")
        fan_out = {server.name: _fan_out_s(settings, server) for server in (etcd, quoracy)}
        checks = {server.name: _check(settings, server) for server in (etcd, quoracy)}
        loaded = {server.name: server.resident_bytes for server in (etcd, quoracy)}
    starts = _starts(settings)
    return Section(
        name="etcd",
        title="The etcd face and etcd 3.5",
        note=_NOTE,
        tables=[
            _loads_table(results),
            _whole_table(starts, idle, loaded, fan_out),
            *_check_tables(checks),
        ],
        targets=_targets(results, starts, idle, loaded),
        data=_data(results, starts, idle, loaded, fan_out),
    )


def _compare(settings: Settings, what: str, clients: int, etcd: Server, quoracy: Server) -> _Both:
    path, message = _CALLS[what]
    both = _Both()
    rounds, seconds = (1, 1.0) if settings.quick else (3, 3.0)
    for number in range(rounds):
        settings.report(f"etcd: {what}, {clients} clients, round {number + 1} of {rounds}")
        for server in random.Random(number).sample((etcd, quoracy), 2):
            runs = both.etcd if server is etcd else both.quoracy
            runs.append(load(server.port, path, message, clients=clients, seconds=seconds))
    return both


def _fan_out_s(settings: Settings, server: Server) -> float:
    watchers = 100 if settings.quick else 1_000
    return run(fan_out_s(server.port, watchers=watchers, puts=5 if settings.quick else 50))


def _starts(settings: Settings) -> dict[str, float]:
    """From nothing to the first answer, each time with a store that is new."""
    times: dict[str, list[float]] = {}
    for number in range(2 if settings.quick else 8):
        settings.report(f"etcd: start {number + 1}")
        for serve in (serve_etcd, serve_quoracy):
            with serve(settings.directory / f"start-{number}-{serve.__name__}") as server:
                times.setdefault(server.name, []).append(server.start_s)
    return {name: statistics.median(each) for name, each in times.items()}


def _check(settings: Settings, server: Server) -> Verdict | None:
    if settings.quick:
        return None  # it takes a minute, whatever it is asked
    settings.report(f"etcd: etcdctl check perf against {server.name}, a minute")
    return check_perf(server.port, _CHECK_LOAD)


_Results = Mapping[tuple[str, int], _Both]


def _loads_table(results: _Results) -> Table:
    rows = []
    for (what, clients), both in results.items():
        etcd_rate, rate = both.pair(lambda run: run.rate)
        etcd_median, median = both.pair(lambda run: run.median_s)
        etcd_p99, p99 = both.pair(lambda run: run.p99_s)
        rows.append(
            [
                f"{what}, {clients} client{'s' if clients > 1 else ''}",
                count(etcd_rate),
                count(rate),
                ratio(both.ratio(lambda run: run.rate)),
                duration(etcd_median),
                duration(median),
                duration(etcd_p99),
                duration(p99),
            ]
        )
    columns = ["call", "etcd/s", "ours/s", "ratio", "etcd p50", "ours", "etcd p99", "ours"]
    return Table(columns, rows)


_Figures = Mapping[str, float]


def _whole_table(starts: _Figures, idle: _Figures, loaded: _Figures, fan_out: _Figures) -> Table:
    rows = [
        [
            what,
            *(show(figures[name]) for name in ("etcd", "Quoracy")),
            ratio(figures["Quoracy"] / figures["etcd"]),
        ]
        for what, figures, show in (
            ("from start to ready", starts, duration),
            ("memory, idle", idle, size),
            ("memory, after the load", loaded, size),
            ("one put to all watchers, median", fan_out, duration),
        )
    ]
    return Table(["", "etcd", "Quoracy", "ratio"], rows)


def _check_tables(checks: Mapping[str, Verdict | None]) -> list[Table]:
    rows = [
        [name, count(verdict.rate), duration(verdict.slowest_s)]
        for name, verdict in checks.items()
        if verdict is not None
    ]
    columns = [f"etcdctl check perf --load {_CHECK_LOAD}", "writes/s", "slowest"]
    return [Table(columns, rows)] if rows else []


def _targets(results: _Results, starts: _Figures, idle: _Figures, loaded: _Figures) -> list[Target]:
    targets = []
    for what in ("put", "range, linearizable", "range, serializable"):
        many, one = results[what, 100], results[what, 1]
        rate, p99 = many.ratio(lambda run: run.rate), many.ratio(lambda run: run.p99_s)
        targets += [
            Target(f"{what}: rate at 100 clients over etcd's", rate, 1.5, True, ""),
            Target(f"{what}: p99 at 100 clients over etcd's", p99, 1.0, False, ""),
        ]
        median = one.ratio(lambda run: run.median_s)
        targets.append(Target(f"{what}: median at 1 client over etcd's", median, 1.0, False, ""))
    for what, figures in (("start", starts), ("idle memory", idle), ("memory after load", loaded)):
        share = figures["Quoracy"] / figures["etcd"]
        targets.append(Target(f"{what} over etcd's", share, 1.0, False, ""))
    return targets


def _data(
    results: _Results, starts: _Figures, idle: _Figures, loaded: _Figures, fan_out: _Figures
) -> dict[str, object]:
    return {
        "loads": {
            f"{what}, {clients}": {
                "rate": both.pair(lambda run: run.rate),
                "median_s": both.pair(lambda run: run.median_s),
                "p99_s": both.pair(lambda run: run.p99_s),
            }
            for (what, clients), both in results.items()
        },
        "start_s": dict(starts),
        "idle_bytes": dict(idle),
        "loaded_bytes": dict(loaded),
        "fan_out_s": dict(fan_out),
    }
