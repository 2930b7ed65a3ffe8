"""Push-pull: exchanging whole tables, with a seed when joining, and with a random member periodically.

Gossip reaches almost everyone; this reaches the rest.  Two members compare one hash first.  Only if it
differs do they compare the hashes of its parts, and send each other the parts that differ: while tables
are equal, the cost does not grow with the cluster.

Dead members are contacted in the same way: this heals a partition that lasted longer than a suspicion,
since each side learns what the other says of it.
"""

from __future__ import annotations

import math
import random

from quoracy.membership.machine import Address
from quoracy.membership.model import JoinAnswered, Member, MemberState
from quoracy.membership.settings import SwimSettings
from quoracy.membership.swim.member_states import MemberStates
from quoracy.membership.swim.messages import (
    Join,
    SyncBuckets,
    SyncRecords,
    SyncRoot,
    Welcome,
    encode,
)
from quoracy.membership.swim.send_queue import Outbox

__all__ = ["PushPull"]

# In larger clusters each member compares less often, so that no member is asked more often.
_SYNC_OFTEN_MAX = 32


class PushPull:
    """Joins, comparisons, and contacts with dead members, of one member."""

    def __init__(
        self, states: MemberStates, settings: SwimSettings, rng: random.Random, out: Outbox
    ) -> None:
        self._states, self._settings = states, settings
        self._rng, self._out = rng, out
        self._sync_at = self._reconnect_at = math.inf
        self.differences_count = 0

    @property
    def due(self) -> float:
        if self._states.has_dead:
            return min(self._sync_at, self._reconnect_at)
        return self._sync_at

    def start(self, now: float) -> None:
        self._sync_at = now + self._rng.random() * self._sync_interval_s()
        self._reconnect_at = now + self._rng.random() * self._settings.reconnect_interval_s

    def stop(self) -> None:
        self._sync_at = self._reconnect_at = math.inf

    def join(self, seed: Address) -> None:
        self._out.stream(seed, encode(Join(_all_records(self._states))))

    def tick(self, now: float) -> None:
        if self._sync_at <= now:
            self._sync_at = now + self._sync_interval_s()
            for peer in self._states.table.some(1, self._rng, _is_alive):
                self._compare_with(peer.address)
        if self._reconnect_at <= now:
            self._reconnect_at = now + self._settings.reconnect_interval_s * (0.5 + self._rng.random())
            dead = self._states.dead_names
            if dead:
                address = self._states.address_of(self._rng.choice(dead))
                assert address is not None
                self._compare_with(address)

    # -- what arrives --------------------------------------------------------------------------------

    def hear_join(self, join: Join, sender: Address, now: float) -> None:
        self._merge(join.records, now)
        self._out.stream(sender, encode(Welcome(_all_records(self._states))))

    def hear_welcome(self, welcome: Welcome, sender: Address, now: float) -> None:
        # The seed has sent this to the others, or received it from them.
        self._merge(welcome.records, now, passes_on=False)
        self._out.tell(JoinAnswered(sender, len(welcome.records)))

    def hear_root(self, sync: SyncRoot, sender: Address) -> None:
        if sync.root != self._states.table.root:
            self.differences_count += 1
            self._out.stream(sender, encode(SyncBuckets(self._states.table.digests)))

    def hear_buckets(self, sync: SyncBuckets, sender: Address) -> None:
        buckets = self._states.table.differing(sync.digests)
        if buckets:
            self._send_records(buckets, sender, wants_answer=True)

    def hear_records(self, sync: SyncRecords, sender: Address, now: float) -> None:
        if sync.wants_answer:  # before merging theirs, which they know already
            self._send_records(sync.buckets, sender, wants_answer=False)
        self._merge(sync.records, now)

    # -- inside --------------------------------------------------------------------------------------

    def _compare_with(self, address: Address) -> None:
        self._out.stream(address, encode(SyncRoot(self._states.table.root)))

    def _send_records(self, buckets: list[int], to: Address, *, wants_answer: bool) -> None:
        records = self._states.table.within(buckets)
        self._out.stream(to, encode(SyncRecords(buckets, records, wants_answer)))

    def _merge(self, records: list[Member], now: float, *, passes_on: bool = True) -> None:
        for record in records:
            self._states.hear_record(record, now, passes_on=passes_on)

    def _sync_interval_s(self) -> float:
        count = self._states.table.present_count
        if count <= _SYNC_OFTEN_MAX:
            return self._settings.sync_interval_s
        return self._settings.sync_interval_s * (
            1 + math.ceil(math.log2(count) - math.log2(_SYNC_OFTEN_MAX))
        )


def _is_alive(member: Member) -> bool:
    return member.state is MemberState.ALIVE


def _all_records(states: MemberStates) -> list[Member]:
    return list(states.table.members.values())
