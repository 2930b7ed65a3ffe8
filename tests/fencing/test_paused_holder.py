"""The example in examples/ does what its guide says, run as its readers run it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "paused_holder.py"

TRANSCRIPT = """\
alice holds the lock, with token {alice}
alice is stopped, for longer than her session lives
bob holds the lock, with token {bob}
bob writes 250
alice goes on, and does not know
alice is REFUSED: token {alice} is stale, {bob} was seen already
alice learns that the lock is lost
the account has 250, written by bob
"""


def test_holder_that_was_stopped_is_refused_when_it_goes_on() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLE)],
        check=False,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    alice, bob = (int(token) for token in re.findall(r"holds the lock, with token (\d+)", done.stdout))
    assert alice < bob
    assert done.stdout == TRANSCRIPT.format(alice=alice, bob=bob)
