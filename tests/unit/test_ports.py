"""Two processes never give out the same port; one does so only after all of its others."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.support.ports import free_port, free_ports


def test_processes_that_run_at_once_have_no_port_in_common() -> None:
    ask = "import json; from tests.support.ports import free_ports; print(json.dumps(free_ports(100)))"
    ours = set(free_ports(100))
    theirs = json.loads(
        subprocess.run([sys.executable, "-c", ask], capture_output=True, check=True).stdout
    )
    assert len(set(theirs)) == 100
    assert not ours & set(theirs)


def test_a_port_comes_around_after_all_others() -> None:
    first = free_port()
    assert first not in free_ports(100)
