"""h2load, the HTTP/2 load generator of nghttp2: rates and latencies of one fixed gRPC call."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.spending import Meter, no_meter
from quoracy.wire.grpc import frame

__all__ = ["Load", "load", "load_all"]

_WARM_UP_S = 0.5
_FRAME_HEAD_BYTES = 9  # of every HTTP/2 frame


@dataclass(frozen=True, slots=True)
class Load:
    """What came of one run.  Of the server's share, 1.0 is one processor, busy all the time."""

    rate: float
    median_s: float
    p99_s: float
    server_share: float = 0.0
    count: int = 0


def load(port: int, path: str, message: bytes, *, clients: int, seconds: float) -> Load:
    """Call one method with one message from so many clients, each with one call at a time.

    h2load counts every answer of status 200, and gRPC says its errors in trailers: whoever calls this
    must have seen that the call works.
    """
    return load_all([port], path, message, clients=clients, seconds=seconds)


def load_all(
    ports: Sequence[int],
    path: str,
    message: bytes,
    *,
    clients: int,
    seconds: float,
    answer_bytes_min: int = 0,
    spent: Meter = no_meter,
) -> Load:
    """The same on servers that hold the same keys: an h2load for each, the clients shared among them.

    Answers that are shorter on average than their message must be are errors, and end the run.  The
    servers' processor time is that of the middle of the run, when every h2load is at work.
    """
    if shutil.which("h2load") is None:
        raise FileNotFoundError("no h2load; on Debian, apt-get install nghttp2-client brings it")
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        body = Path(directory, "body")
        body.write_bytes(frame(message))
        started = time.perf_counter()
        loads = []
        for at, (port, part) in enumerate(zip(ports, _shared_out(clients, len(ports)), strict=True)):
            log = Path(directory, f"log-{at}")
            if part:
                command = _command(port, path, body, log, part, seconds)
                loads.append((stack.enter_context(_started(command)), log))
        share = _share(spent, started + _WARM_UP_S, seconds)
        parts = [_outcome(process, log, answer_bytes_min) for process, log in loads]
    latencies = sorted(latency for part in parts for latency in part.latencies_us)
    return Load(
        rate=sum(part.rate for part in parts),
        median_s=latencies[len(latencies) // 2] / 1e6,
        p99_s=latencies[len(latencies) * 99 // 100] / 1e6,
        server_share=share,
        count=len(latencies),
    )


def _shared_out(clients: int, number: int) -> list[int]:
    """As evenly as can be, the first ones having more."""
    return [clients // number + (at < clients % number) for at in range(number)]


def _command(
    port: int, path: str, body: Path, log: Path, clients: int, seconds: float
) -> Sequence[str]:
    return [
        *("h2load", "-t", "1", "-c", str(clients), "-m", "1"),
        *("-D", f"{seconds * 1000:.0f}ms", "--warm-up-time", f"{_WARM_UP_S * 1000:.0f}ms"),
        *("-d", str(body), "--log-file", str(log)),
        *("-H", "content-type: application/grpc", "-H", "te: trailers"),
        f"http://127.0.0.1:{port}{path}",
    ]


@contextmanager
def _started(command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise


def _share(spent: Meter, begins_at: float, seconds: float) -> float:
    """Of a processor, in the middle of the time that is measured."""
    if spent is no_meter:
        return 0.0
    edge_s = seconds / 10
    time.sleep(max(0.0, begins_at + edge_s - time.perf_counter()))
    spent_s, started = spent(), time.perf_counter()
    time.sleep(seconds - 2 * edge_s)
    return (spent() - spent_s) / (time.perf_counter() - started)


@dataclass(frozen=True, slots=True)
class _Outcome:
    rate: float
    latencies_us: Sequence[int]


def _outcome(process: subprocess.Popen[str], log: Path, answer_bytes_min: int) -> _Outcome:
    said, _ = process.communicate()
    latencies = [int(line.rsplit("\t", 1)[1]) for line in log.read_text().splitlines()]
    rate = re.search(r"finished in [^,]+, ([0-9.]+) req/s", said)
    failed = re.search(r"(\d+) failed, (\d+) errored, (\d+) timeout", said)
    traffic = re.search(r"traffic: \S+ \((\d+)\) total", said)
    if (
        process.returncode
        or rate is None
        or failed is None
        or traffic is None
        or any(map(int, failed.groups()))
        or not latencies
    ):
        raise RuntimeError(f"h2load did not get through:\n{said}")
    # An answer is a frame of headers, one of data and one of trailers.
    expected = answer_bytes_min + 3 * _FRAME_HEAD_BYTES if answer_bytes_min else 0
    if int(traffic[1]) < expected * len(latencies):
        raise RuntimeError(
            f"{len(latencies)} answers have {traffic[1]} bytes, less than {expected} each: "
            "some of them must be errors"
        )
    return _Outcome(float(rate[1]), latencies)
