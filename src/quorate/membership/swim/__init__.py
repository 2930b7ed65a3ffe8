"""SWIM with Lifeguard: who is in the cluster and who is not, at a constant cost for each member."""

from quorate.membership.swim.machine import Swim, SwimStatistics
from quorate.membership.swim.table import MemberTable

__all__ = ["MemberTable", "Swim", "SwimStatistics"]
