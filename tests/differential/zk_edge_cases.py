"""Sequences written by hand, one for each thing that is easily got wrong.

Each begins with the clients 0, 1 and 2 connected and an empty tree.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.differential.zk_edge_acls import ACLS
from tests.differential.zk_edge_multis import MULTIS
from tests.differential.zk_edge_nodes import NODES
from tests.differential.zk_edge_protocol import PROTOCOL
from tests.differential.zk_edge_watches import WATCHES
from tests.differential.zk_steps import Step

__all__ = ["CASES"]

CASES: Mapping[str, list[Step]] = {**NODES, **WATCHES, **MULTIS, **PROTOCOL, **ACLS}
