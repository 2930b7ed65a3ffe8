"""Gossip: the small state of each participant, known to all participants after a while."""

from quoracy.membership.gossip.machine import Gossip as Gossip
from quoracy.membership.gossip.model import GossipStatistics as GossipStatistics
from quoracy.membership.gossip.model import StateChanged as StateChanged
from quoracy.membership.gossip.settings import GossipMode as GossipMode
from quoracy.membership.gossip.settings import GossipSettings as GossipSettings

__all__ = ["Gossip", "GossipMode", "GossipSettings", "GossipStatistics", "StateChanged"]
