"""A real standalone ZooKeeper from Debian's jars: one process on a free loopback port.

Ready means that it answers `srvr` and serves, so a client that connects then is not turned away.

Invariants
    * A server is ended by its own process handle; its data, settings and log are in the directory it
      was given.
    * Every wait has a deadline; a server that does not start says why, with the end of its log.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.ports import free_port

__all__ = [
    "ZooKeeperProcess",
    "digest_id",
    "four_letter_word",
    "running_zookeeper",
    "zookeeper_missing",
]

_JARS = Path("/usr/share/java")
# The last is for the HTTP port, and Debian leaves it out of zookeeper.jar's own list.
_CLASS_PATH = ("zookeeper.jar", "slf4j-simple.jar", "servlet-api.jar")
_START_S_MAX = 60.0
_STOP_S_MAX = 10.0
_STARTS_MAX = 3
_ANSWER_S_MAX = 5.0
_POLL_S_MAX = 0.3

# What a test wants of any server: every four-letter word, TTL nodes, no limit on connections, no
# HTTP port.  Names are those of zoo.cfg, which makes a property `zookeeper.NAME` of any it does not
# know.
_SETTINGS: Mapping[str, object] = {
    "tickTime": 2000,
    "maxClientCnxns": 0,
    "4lw.commands.whitelist": "*",
    "admin.enableServer": "false",
    "extendedTypesEnabled": "true",
}

# To start soon matters more here than to be fast after a minute.
_JAVA_SOON = ("-Xshare:auto", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m")


def zookeeper_missing() -> str | None:
    """What lacks for a real ZooKeeper, and how to get it; None if nothing does."""
    if shutil.which("java") is None:
        return "java is not installed; on Debian: apt-get install default-jre-headless"
    for jar in ("zookeeper.jar", "slf4j-simple.jar"):
        if not (_JARS / jar).is_file():
            return f"{_JARS / jar} is not there; on Debian: apt-get install zookeeper"
    return None


def digest_id(user: str, password: str) -> str:
    """The id of an ACL of the scheme `digest`, and what `super_digest` takes."""
    digest = hashlib.sha1(f"{user}:{password}".encode(), usedforsecurity=False).digest()
    return f"{user}:{base64.b64encode(digest).decode()}"


def four_letter_word(port: int, word: str, *, within_s: float = _ANSWER_S_MAX) -> str:
    """What the server at that port answers to `ruok`, `srvr`, `mntr`..."""
    with socket.create_connection(("127.0.0.1", port), within_s) as connection:
        connection.sendall(word.encode("ascii"))
        answer = bytearray()
        while part := connection.recv(65536):
            answer += part
    return answer.decode("utf-8", "replace")


@contextmanager
def running_zookeeper(
    directory: Path,
    *,
    super_digest: str | None = None,
    settings: Mapping[str, object] | None = None,
    properties: Mapping[str, object] | None = None,
    durable: bool = False,
) -> Iterator[ZooKeeperProcess]:
    """Run one ZooKeeper with an empty tree; skips the test if there is none.  See ZooKeeperProcess.

    In the end it is killed: to be asked it takes up to five seconds, and nobody needs its data.
    """
    server = ZooKeeperProcess(
        directory,
        super_digest=super_digest,
        settings=settings,
        properties=properties,
        durable=durable,
    )
    server.start()
    try:
        yield server
    finally:
        server.kill()


class ZooKeeperProcess:
    """One standalone ZooKeeper, which may be killed and started again with the same port and data.

    `settings` are lines of zoo.cfg (`{"tickTime": 500}`) and `properties` of the Java machine
    (`{"jute.maxbuffer": 4096}`); both go before what is set here.  `super_digest` is what
    `digest_id("super", password)` gives.  Without `durable` it does not wait for the disk: a killed
    process loses nothing by that, and nothing here outlives the machine.  `java` takes the place of
    the options that make it start soon, for a benchmark.
    """

    def __init__(
        self,
        directory: Path,
        *,
        super_digest: str | None = None,
        settings: Mapping[str, object] | None = None,
        properties: Mapping[str, object] | None = None,
        durable: bool = False,
        java: tuple[str, ...] = _JAVA_SOON,
    ) -> None:
        if missing := zookeeper_missing():
            pytest.skip(missing)
        self._directory = directory
        self._settings = {**_SETTINGS, **(settings or {})}
        if super_digest is not None:
            self._settings["DigestAuthenticationProvider.superDigest"] = super_digest
        self._properties = {"zookeeper.forceSync": "yes" if durable else "no", **(properties or {})}
        self._java = java
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server is not running"
        return self._process.pid

    @property
    def log(self) -> str:
        return (self._directory / "zookeeper.log").read_text("utf-8", "replace")

    def start(self) -> None:
        """Start it and wait until it serves."""
        assert self._process is None, "the server is running"
        # The port that was free may be taken before the server has it: then another is tried, but
        # not once clients know the port.
        chosen = self.port != 0
        for _ in range(1 if chosen else _STARTS_MAX):
            if not chosen:
                self.port = free_port()
            self._process = self._launch()
            if self._wait_serving():
                return
            self.kill()
        raise RuntimeError(f"ZooKeeper did not start; its log ends with\n{self.log[-2000:]}")

    def stop(self) -> None:
        """End it as an operator does; it may have ended before."""
        self._end(kill=False)

    def kill(self) -> None:
        """At once, as `kill -9` does."""
        self._end(kill=True)

    def _end(self, *, kill: bool) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if kill:
            process.kill()
        else:
            process.terminate()
        try:
            process.wait(_STOP_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_STOP_S_MAX)

    def _launch(self) -> subprocess.Popen[bytes]:
        settings = {
            **self._settings,
            "dataDir": self._directory / "data",
            "clientPort": self.port,
            "clientPortAddress": "127.0.0.1",
        }
        file = self._directory / "zoo.cfg"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), "utf-8")
        properties = {"org.slf4j.simpleLogger.defaultLogLevel": "warn", **self._properties}
        with (self._directory / "zookeeper.log").open("ab") as log:
            return subprocess.Popen(
                [
                    "java",
                    *self._java,
                    *(f"-D{name}={value}" for name, value in properties.items()),
                    "-cp",
                    ":".join(str(_JARS / jar) for jar in _CLASS_PATH),
                    "org.apache.zookeeper.server.ZooKeeperServerMain",
                    str(file),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Java takes options from there too; those of the surroundings are not for this one.
                env={name: value for name, value in os.environ.items() if "JAVA" not in name},
            )

    def _wait_serving(self) -> bool:
        assert self._process is not None
        deadline = time.monotonic() + _START_S_MAX
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                answer = four_letter_word(self.port, "srvr", within_s=_POLL_S_MAX)
                if answer.startswith("Zookeeper version"):
                    return True
            except OSError:
                pass  # not listening yet; or just so, when it never answers at all
            time.sleep(0.02)  # a poll with a deadline
        return False
