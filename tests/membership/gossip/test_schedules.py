"""Seeded schedules in the simulator: whatever the network does, everyone ends with the same, and at no
moment does anyone have what an owner never had."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec
import pytest

from quoracy.membership.gossip import Gossip, GossipMode, GossipSettings, StateChanged
from quoracy.membership.machine import Effect, Machine
from quoracy.membership.simulator import Network, Uniform, World
from tests.faults.scale import LONG, rounds

# The long version takes minutes for each network.
pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800 if LONG else 120)]

KEYS = "klmnop"
# Small packets and short memories, so that what is rare elsewhere happens all the time.
SETTINGS = GossipSettings(
    packet_bytes_max=512,
    stream_above_bytes=1_024,
    buckets=16,
    owners_max=2_000,
    tombstone_s=3.0,
    tombstones_max=3,
    push_mult=2,
)

SHAPES = {
    "calm": Network(),
    "loss": Network(loss=0.3),
    "everything": Network(
        loss=0.2, duplicate=0.2, reorder=0.3, reorder_s=0.8, latency=Uniform(0.001, 0.2)
    ),
}


class Trial:
    """One run: random writes, deletions, restarts and partitions, judged after every one."""

    def __init__(self, seed: int, mode: GossipMode, network: Network, members_count: int) -> None:
        self.seed = seed
        self.settings = msgspec.structs.replace(SETTINGS, mode=mode)
        self.world = World(seed, network=network)
        self.world.on_event = self.seen
        self.rng = random.Random(f"{seed}/schedule")
        self.names = [f"m{number}" for number in range(members_count)]
        # Owner -> generation and version -> what it had.
        self.truth: dict[str, dict[tuple[int, int], dict[str, bytes]]] = {}
        # Observer -> owner -> what the events told it.
        self.views: dict[str, dict[str, dict[str, bytes]]] = {}
        self.lives = dict.fromkeys(self.names, 1)
        for name in self.names:
            self.truth[name] = {}
            self.world.add(name, self.born(name), factory=self.factory(name))
        self.world.run(0.0)

    def born(self, name: str, rng: random.Random | None = None) -> Gossip:
        generation = self.lives[name]
        self.views[name] = {}
        peers = [other for other in self.names if other != name]
        return Gossip(
            name,
            generation=generation,
            rng=rng or self.world.rng(name),
            settings=self.settings,
            peers=peers,
        )

    def factory(self, name: str) -> Callable[[random.Random], Machine]:
        def make(rng: random.Random) -> Machine:
            self.lives[name] += 1
            return self.born(name, rng)

        return make

    def gossip(self, name: str) -> Gossip:
        machine = self.world.machine(name)
        return _gossip(machine)

    def seen(self, time: float, address: str, event: object) -> None:
        assert isinstance(event, StateChanged)
        view = self.views[address].setdefault(event.owner, {})
        assert view.get(event.key) != event.value, "told of what is no change"
        if event.value is None:
            del view[event.key]
        else:
            view[event.key] = event.value

    def step(self) -> None:
        name = self.rng.choice(self.names)
        draw = self.rng.random()
        if draw < 0.06 and len(list(self.world.up)) > 2:
            if self.world.is_up(name):
                self.world.crash(name)
                self.world.restart(name, self.world.now + self.rng.uniform(0.1, 6.0))
        elif draw < 0.12:
            group = self.rng.sample(self.names, len(self.names) // 2)
            self.world.partition(group, until=self.world.now + self.rng.uniform(1.0, 8.0))
        elif self.world.is_up(name):
            self.world.call(name, self.write)
        self.world.run(self.world.now + self.rng.expovariate(4.0))
        self.judge()

    def write(self, owner: Machine, now: float) -> list[Effect]:
        machine = _gossip(owner)
        self.record(machine)
        key = self.rng.choice(KEYS)
        if self.rng.random() < 0.3:
            effects = machine.delete(key, now)
        else:
            size = self.rng.choice([1, 20, 200, 700])
            effects = machine.set(key, self.rng.randbytes(size), now)
        self.record(machine)
        return effects

    def record(self, owner: Gossip) -> None:
        """What an owner has itself, which for its version never changes."""
        rank, have = owner.version_of(owner.name), dict(owner.of(owner.name))
        assert self.truth[owner.name].setdefault(rank, have) == have

    def judge(self) -> None:
        for name in self.world.up:
            self.record(self.gossip(name))
        for name in self.world.up:
            gossip = self.gossip(name)
            for owner in gossip.owners:
                rank = gossip.version_of(owner)
                have = dict(gossip.of(owner))
                assert self.truth[owner][rank] == have, f"{name} has of {owner} what never was"
                if owner != name:
                    assert self.views[name].get(owner, {}) == have

    def settle(self) -> None:
        self.world.heal()
        self.world.run(self.world.now + 10.0)  # those who are down come back
        self.judge()
        for name in self.names:
            self.world.call(name, lambda machine, now: _gossip(machine).set("last", b"word", now))
        # Rumours alone promise nothing to who missed them all; but here they miss nobody.
        rumours = self.settings.mode is GossipMode.PUSH
        surely = not rumours or (not self.world.links.loss and len(self.names) <= 4)

        def is_settled() -> bool:
            return len({self.gossip(name).root for name in self.names}) == 1

        settled = self.world.run_until(is_settled, until=self.world.now + 300.0)
        assert settled or not surely, "they do not agree"
        self.judge()
        assert all(self.gossip(name).statistics().skips == 0 for name in self.names)
        if settled:
            for owner in self.gossip(self.names[0]).owners:
                views = [dict(self.gossip(name).of(owner)) for name in self.names]
                assert views == [views[0]] * len(views)


def _gossip(machine: Machine) -> Gossip:
    assert isinstance(machine, Gossip)
    return machine


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("mode", GossipMode)
def test_all_agree_in_the_end_and_nobody_ever_has_what_never_was(mode: GossipMode, shape: str) -> None:
    for number in range(rounds(16, 2_000)):
        seed = 1_000 * number + len(shape)
        trial = Trial(seed, mode, SHAPES[shape], members_count=2 + number % 6)
        try:
            for _ in range(120 if LONG else 80):
                trial.step()
            trial.settle()
        except Exception as error:
            error.add_note(f"seed {seed}, {mode}, {shape}")
            raise


def test_the_same_seed_gives_the_same_run() -> None:
    def roots() -> list[int]:
        trial = Trial(7, GossipMode.MIXED, SHAPES["everything"], members_count=5)
        found = []
        for _ in range(40):
            trial.step()
            found += [trial.gossip(name).root for name in trial.names]
        return found

    assert roots() == roots()
