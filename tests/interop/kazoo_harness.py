"""A pytest plugin that runs kazoo's own tests, as kazoo ships them, on a server that is there already.

kazoo's tests start a cluster of their own from ZooKeeper's jars; here their cluster is one server by
its address, named in the environment.  Nothing else about them is changed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from types import ModuleType

# Wanted by kazoo's tests to make certificates for the cluster that is not made here.
for _name in ("OpenSSL", "jks"):
    sys.modules.setdefault(_name, ModuleType(_name))

from kazoo.testing import harness  # noqa: E402

ADDRESS = "QUORACY_TESTS_ZOOKEEPER"


class OneServer:
    """What kazoo's tests want to know about a server of a cluster."""

    running = True
    address = os.environ.get(ADDRESS, "")


class Cluster:
    """A cluster of one server that others start and stop."""

    def __iter__(self) -> Iterator[OneServer]:
        return iter([OneServer()])

    def __getitem__(self, index: int) -> OneServer:
        return list(self)[index]

    def terminate(self) -> None:
        """kazoo's tests end their cluster after every class."""


harness.CLUSTER = Cluster()
harness.get_global_cluster = lambda: harness.CLUSTER
