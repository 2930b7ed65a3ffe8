"""h2load, the HTTP/2 load generator of nghttp2: rates and latencies of one fixed gRPC call."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from quorate.wire.grpc import frame

__all__ = ["Load", "load"]


@dataclass(frozen=True, slots=True)
class Load:
    """What came of one run."""

    rate: float
    median_s: float
    p99_s: float


def load(port: int, path: str, message: bytes, *, clients: int, seconds: float) -> Load:
    """Call one method with one message from so many clients, each with one call at a time.

    h2load counts every answer of status 200, and gRPC says its errors in trailers: whoever calls this
    must have seen that the call works.
    """
    if shutil.which("h2load") is None:
        raise FileNotFoundError("no h2load; on Debian, apt-get install nghttp2-client brings it")
    with tempfile.TemporaryDirectory() as directory:
        body, log = Path(directory, "body"), Path(directory, "log")
        body.write_bytes(frame(message))
        result = subprocess.run(
            [
                *("h2load", "-t", "1", "-c", str(clients), "-m", "1"),
                *("-D", f"{seconds:g}", "--warm-up-time", "500ms"),
                *("-d", str(body), "--log-file", str(log)),
                *("-H", "content-type: application/grpc", "-H", "te: trailers"),
                f"http://127.0.0.1:{port}{path}",
            ],
            capture_output=True,
            text=True,
            check=True,
        )
        latencies = sorted(int(line.rsplit("\t", 1)[1]) for line in log.read_text().splitlines())
    rate = re.search(r"finished in [^,]+, ([0-9.]+) req/s", result.stdout)
    failed = re.search(r"(\d+) failed, (\d+) errored, (\d+) timeout", result.stdout)
    if rate is None or failed is None or any(map(int, failed.groups())) or not latencies:
        raise RuntimeError(f"h2load did not get through:\n{result.stdout}")
    return Load(
        rate=float(rate[1]),
        median_s=latencies[len(latencies) // 2] / 1e6,
        p99_s=latencies[len(latencies) * 99 // 100] / 1e6,
    )
