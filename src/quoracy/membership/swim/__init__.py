"""SWIM with Lifeguard: which members are in the cluster, at a constant cost per member."""

from quoracy.membership.swim.machine import Swim, SwimStatistics
from quoracy.membership.swim.member_table import MemberTable

__all__ = ["MemberTable", "Swim", "SwimStatistics"]
