"""A deterministic network in which thousands of members run in one process: same seed, same run."""

from __future__ import annotations

from quoracy.membership.simulator.faults import Crash as Crash
from quoracy.membership.simulator.faults import Drift as Drift
from quoracy.membership.simulator.faults import Fault as Fault
from quoracy.membership.simulator.faults import Heal as Heal
from quoracy.membership.simulator.faults import Join as Join
from quoracy.membership.simulator.faults import Leave as Leave
from quoracy.membership.simulator.faults import Loss as Loss
from quoracy.membership.simulator.faults import OneWay as OneWay
from quoracy.membership.simulator.faults import Partition as Partition
from quoracy.membership.simulator.faults import Restart as Restart
from quoracy.membership.simulator.faults import Slow as Slow
from quoracy.membership.simulator.faults import Stall as Stall
from quoracy.membership.simulator.faults import random_faults as random_faults
from quoracy.membership.simulator.network import Constant as Constant
from quoracy.membership.simulator.network import Latency as Latency
from quoracy.membership.simulator.network import Link as Link
from quoracy.membership.simulator.network import LogNormal as LogNormal
from quoracy.membership.simulator.network import Network as Network
from quoracy.membership.simulator.network import Normal as Normal
from quoracy.membership.simulator.network import Pareto as Pareto
from quoracy.membership.simulator.network import Uniform as Uniform
from quoracy.membership.simulator.node import Counters as Counters
from quoracy.membership.simulator.swim_cluster import SwimCluster as SwimCluster
from quoracy.membership.simulator.swim_cluster import swim_cluster as swim_cluster
from quoracy.membership.simulator.trace import Trace as Trace
from quoracy.membership.simulator.world import World as World
