"""A deterministic network in which thousands of members run in one process: same seed, same run."""

from __future__ import annotations

from quorate.membership.simulator.faults import Crash as Crash
from quorate.membership.simulator.faults import Drift as Drift
from quorate.membership.simulator.faults import Fault as Fault
from quorate.membership.simulator.faults import Heal as Heal
from quorate.membership.simulator.faults import Join as Join
from quorate.membership.simulator.faults import Leave as Leave
from quorate.membership.simulator.faults import Loss as Loss
from quorate.membership.simulator.faults import OneWay as OneWay
from quorate.membership.simulator.faults import Partition as Partition
from quorate.membership.simulator.faults import Restart as Restart
from quorate.membership.simulator.faults import Slow as Slow
from quorate.membership.simulator.faults import Stall as Stall
from quorate.membership.simulator.latency import Constant as Constant
from quorate.membership.simulator.latency import Latency as Latency
from quorate.membership.simulator.latency import LogNormal as LogNormal
from quorate.membership.simulator.latency import Normal as Normal
from quorate.membership.simulator.latency import Pareto as Pareto
from quorate.membership.simulator.latency import Uniform as Uniform
from quorate.membership.simulator.network import Link as Link
from quorate.membership.simulator.network import Network as Network
from quorate.membership.simulator.node import Counters as Counters
from quorate.membership.simulator.schedule import random_faults as random_faults
from quorate.membership.simulator.swim_world import SwimCluster as SwimCluster
from quorate.membership.simulator.swim_world import swim_cluster as swim_cluster
from quorate.membership.simulator.trace import Trace as Trace
from quorate.membership.simulator.world import World as World
