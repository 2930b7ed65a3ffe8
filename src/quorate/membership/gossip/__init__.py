"""Gossip: everyone's small state, known to everyone after a while."""

from quorate.membership.gossip.core import Gossip as Gossip
from quorate.membership.gossip.model import GossipStatistics as GossipStatistics
from quorate.membership.gossip.model import StateChanged as StateChanged
from quorate.membership.gossip.settings import GossipMode as GossipMode
from quorate.membership.gossip.settings import GossipSettings as GossipSettings

__all__ = ["Gossip", "GossipMode", "GossipSettings", "GossipStatistics", "StateChanged"]
