"""`etcdctl check perf`: etcd's own measure of whether a server is up to a load, for a minute."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass

from bench.servers import etcd_program

__all__ = ["Verdict", "check_perf"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What it says: writes a second, and the slowest of them."""

    rate: float
    slowest_s: float


def check_perf(port: int, load: str) -> Verdict:
    """Run it; `load` is s, m, l or xl, for 150 to 15,000 writes a second that are attempted.

    Its exit code says whether the load was reached, which is not asked here.
    """
    result = subprocess.run(
        [
            str(etcd_program().with_name("etcdctl")),
            *("--endpoints", f"http://127.0.0.1:{port}", "check", "perf", "--load", load),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    said = result.stdout + result.stderr
    rate = re.search(r"Throughput (?:is|too low:) (\d+) writes/s", said)
    slowest = re.search(r"Slowest request took (?:too long: )?([\d.]+)s", said)
    if rate is None or slowest is None:
        raise RuntimeError(f"etcdctl check perf did not get through:\n{said}")
    return Verdict(float(rate[1]), float(slowest[1]))
