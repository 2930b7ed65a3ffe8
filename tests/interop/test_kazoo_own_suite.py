"""kazoo's own tests, as kazoo ships them: what its authors expect of a server."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
from kazoo.version import __version__

from tests.faults.scale import LONG
from tests.interop.kazoo_harness import ADDRESS
from tests.interop.programs import run
from tests.interop.zookeepers import ZooKeeper, takes_long

_ROOT = Path(__file__).parents[2]

# Those that start and stop the servers of a cluster, or give them certificates: there is one server.
_OF_A_CLUSTER = (
    "test_request_queuing_session_expired",
    "test_request_queuing_session_recovered",
    "test_update_host_list",
    "TestSSLClient",
    "TestReconfig",
    "TestReadOnlyMode",
)
# Those of a second and more, nearly all of which they sleep.
_SLOW = (
    "SelectTestCase",
    "KazooPartitionerTests",
    "test_child_watcher_remove_session_watcher",
    "test_child_stop_on_session_loss",
    "test_timeout",
    "test_lock_timeout",
    "test_listener_only_called_on_real_state_change",
    "test_lock_many_threads",
    "test_delete_operation",
    "test_close",
    "test_watch_iterations",
)
_LEAST = 300 if LONG else 270


@takes_long
@pytest.mark.timeout(600)
def test_kazoos_own_tests_pass(zookeeper: ZooKeeper, tmp_path: Path) -> None:
    left_out = _OF_A_CLUSTER if LONG else _OF_A_CLUSTER + _SLOW
    done = run(
        *(sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", tmp_path),
        *("-p", "tests.interop.kazoo_harness", "-p", "no:cacheprovider", "-p", "no:asyncio"),
        *("-k", " and ".join(f"not {name}" for name in left_out)),
        *("--pyargs", "kazoo.tests"),
        env={
            **{name: text for name, text in os.environ.items() if name[:7] != "PYTEST_"},
            "PYTHONPATH": str(_ROOT),
            ADDRESS: zookeeper.address,
        },
        wait_s_max=500,
    )
    assert done.code == 0, f"kazoo {__version__}\n{done.out[-8000:]}\n{done.err}"
    passed = re.search(r"(\d+) passed", done.out)
    assert passed is not None
    assert int(passed[1]) >= _LEAST, "fewer tests than kazoo 2.11 has"
