"""The settings of SWIM, with defaults for machines on one local network.

Where hashicorp/memberlist has the same setting, the default is that of its local-network
configuration, which has been used in production for years; a comment says why where one differs.
"""

from __future__ import annotations

import math

import msgspec

from quoracy.errors import InvalidRequest

__all__ = ["META_BYTES_MAX", "NAME_BYTES_MAX", "SwimSettings"]

NAME_BYTES_MAX = 128
META_BYTES_MAX = 512
# All that a member says of itself fits, with an address of 270 bytes and what is around them.
_PACKET_BYTES_MIN = 320 + NAME_BYTES_MAX + META_BYTES_MAX


class SwimSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How one member behaves.  All members of a cluster should have the same.

    probe_interval_s: one member is probed in this time.
    probe_timeout_s: how long a direct answer is waited for before others are asked to try.
    helpers: how many others are asked to probe.
    stream_probe: try a reliable message as well, for networks that drop datagrams only.
    suspicion_mult: a suspect has at least suspicion_mult * log10(n) intervals to say that it is alive,
    suspicion_max_mult: and this many times as long while nobody else suspects it too.
    retransmit_mult: an update is sent retransmit_mult * ceil(log10(n + 1)) times by each member.
    gossip_interval_s, gossip_fanout: while there is news, it is sent to `gossip_fanout` others in each
    interval, besides being carried by probes.
    sync_interval_s: how often the whole state is compared with one other member's (rarer in clusters of
    more than 32); what is equal costs a hash.
    gossip_to_dead_s: how long a dead member is still sent the news of its death, in case it lives.
    reconnect_interval_s: how often one of the dead is asked whether it is back: a network that was
    parted for longer than a suspicion lasts heals this way.
    reclaim_s: how long after its death the name of a member may be taken by another address.
    forget_s: how long members that died or left are remembered.
    health_max: Lifeguard's local health multiplier; how many steps a member can doubt itself.
    buddy: a ping to a suspect says that it is suspected.
    nacks: helpers that get no answer say so.
    minds_pauses: a member whose timers ran late does not count its own pause as the silence of others.
    Not in the paper.
    """

    probe_interval_s: float = 1.0
    probe_timeout_s: float = 0.3  # memberlist: 0.5; answers on a local network take a millisecond
    helpers: int = 3
    stream_probe: bool = True
    suspicion_mult: int = 4
    suspicion_max_mult: int = 6
    retransmit_mult: int = 4
    gossip_interval_s: float = 0.2
    gossip_fanout: int = 3
    sync_interval_s: float = 30.0
    gossip_to_dead_s: float = 30.0
    reconnect_interval_s: float = 10.0  # memberlist leaves it to its users; Serf: 30 s
    reclaim_s: float = 30.0
    forget_s: float = 86_400.0
    health_max: int = 7
    buddy: bool = True
    nacks: bool = True
    minds_pauses: bool = True
    packet_bytes_max: int = 1_350  # with 40 bytes of envelope, one Ethernet frame with room for tunnels
    members_max: int = 65_536
    updates_max: int = 8_192

    def __post_init__(self) -> None:
        for name in _POSITIVE:
            if not 0 < getattr(self, name) < math.inf:
                raise InvalidRequest(f"{name} must be more than 0, not {getattr(self, name)}")
        if self.probe_timeout_s >= self.probe_interval_s:
            raise InvalidRequest(
                f"probe_timeout_s ({self.probe_timeout_s}) must be less than probe_interval_s "
                f"({self.probe_interval_s}): the rest of the interval is for asking others"
            )
        if self.packet_bytes_max < _PACKET_BYTES_MIN:
            raise InvalidRequest(
                f"packet_bytes_max must be at least {_PACKET_BYTES_MIN}, not {self.packet_bytes_max}"
            )
        for name in ("helpers", "health_max"):
            if getattr(self, name) < 0:
                raise InvalidRequest(f"{name} must not be negative, not {getattr(self, name)}")

    @classmethod
    def wide(cls) -> SwimSettings:
        """For members in several places, with round trips of up to a second."""
        return cls(
            probe_interval_s=5.0,
            probe_timeout_s=3.0,
            suspicion_mult=6,
            gossip_interval_s=0.5,
            gossip_fanout=4,
            sync_interval_s=60.0,
            gossip_to_dead_s=60.0,
        )

    def without_lifeguard(self) -> SwimSettings:
        """SWIM as first published, for comparison: fixed suspicion, no doubt in oneself."""
        return msgspec.structs.replace(
            self, suspicion_max_mult=1, health_max=0, buddy=False, nacks=False, minds_pauses=False
        )

    def suspicion_min_s(self, members_count: int) -> float:
        return self.suspicion_mult * max(1.0, math.log10(max(1, members_count))) * self.probe_interval_s

    def transmits_max(self, members_count: int) -> int:
        return self.retransmit_mult * math.ceil(math.log10(members_count + 1))


_POSITIVE = (
    "probe_interval_s", "probe_timeout_s", "suspicion_mult", "suspicion_max_mult", "retransmit_mult",
    "gossip_interval_s", "gossip_fanout", "sync_interval_s", "gossip_to_dead_s",
    "reconnect_interval_s", "reclaim_s", "forget_s", "members_max", "updates_max",
)  # fmt: skip
