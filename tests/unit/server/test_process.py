"""The server as a process: its file descriptors, and sd_notify to a socket like systemd's."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from quoracy.server.process import notify_service_manager

SCRIPT = """
import resource
from quoracy.server.process import raise_descriptor_limit

resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
raise_descriptor_limit({connections})
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such limit")
@pytest.mark.parametrize(
    ("soft", "hard", "connections", "reached", "warned"),
    [
        (2_000, 3_000, 10, 2_000, False),
        (256, 3_000, 500, 1_600, False),
        (256, 1_000, 500, 1_000, True),
    ],
    ids=["enough", "raised", "as far as it goes"],
)
def test_limit_is_raised_to_what_connections_need(
    soft: int, hard: int, connections: int, reached: int, warned: bool
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(soft=soft, hard=hard, connections=connections)],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert int(done.stdout) == reached
    assert ("LimitNOFILE" in done.stderr) is warned


linux = pytest.mark.skipif(sys.platform != "linux", reason="systemd is Linux's")


@pytest.fixture(params=["a path", "an abstract name"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "notify") if request.param == "a path" else f"@quoracy-test-{os.getpid()}"


@pytest.fixture
def manager(place: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(place.replace("@", "\0"))
        listening.settimeout(30)
        yield listening


@linux
def test_state_arrives(manager: socket.socket, place: str) -> None:
    notify_service_manager("READY=1", environ={"NOTIFY_SOCKET": place})
    assert manager.recv(100) == b"READY=1"


@linux
def test_nobody_is_told_when_nobody_asked() -> None:
    notify_service_manager("READY=1", environ={})


@linux
def test_socket_that_is_gone_is_logged_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    notify_service_manager("READY=1", environ={"NOTIFY_SOCKET": str(tmp_path / "gone")})
    assert len(caplog.messages) == 1
