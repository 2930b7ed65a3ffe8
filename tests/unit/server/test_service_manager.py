"""sd_notify, to a socket like systemd's."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from quoracy.server.service_manager import tell_service_manager

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="systemd is Linux's")


@pytest.fixture(params=["a path", "an abstract name"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "notify") if request.param == "a path" else f"@quoracy-test-{os.getpid()}"


@pytest.fixture
def manager(place: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(place.replace("@", "\0"))
        listening.settimeout(30)
        yield listening


def test_state_arrives(manager: socket.socket, place: str) -> None:
    tell_service_manager("READY=1", environ={"NOTIFY_SOCKET": place})
    assert manager.recv(100) == b"READY=1"


def test_nobody_is_told_when_nobody_asked() -> None:
    tell_service_manager("READY=1", environ={})


def test_socket_that_is_gone_is_logged_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tell_service_manager("READY=1", environ={"NOTIFY_SOCKET": str(tmp_path / "gone")})
    assert len(caplog.messages) == 1
