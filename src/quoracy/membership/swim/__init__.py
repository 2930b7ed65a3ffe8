"""SWIM with Lifeguard: who is in the cluster and who is not, at a constant cost for each member."""

from quoracy.membership.swim.machine import Swim, SwimStatistics
from quoracy.membership.swim.member_table import MemberTable

__all__ = ["MemberTable", "Swim", "SwimStatistics"]
