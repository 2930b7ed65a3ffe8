"""File descriptors: as many as connections need, as far as the system goes."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import resource
from quoracy.server.descriptors import make_room_for

resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
make_room_for({connections})
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
