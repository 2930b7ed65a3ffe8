"""Clusters of SWIM members: how they begin, what is recorded, what the story makes of it."""

from __future__ import annotations

import pytest

from quoracy.errors import InvalidRequest
from quoracy.membership.model import MemberChangeKind, MemberState
from quoracy.membership.simulator import (
    Crash,
    Leave,
    Network,
    Partition,
    Restart,
    Stall,
    SwimCluster,
    Trace,
    swim_cluster,
)
from quoracy.membership.simulator.story import Level, MomentKind, Story, tell
from quoracy.membership.simulator.swim_cluster import Change
from quoracy.membership.simulator.timeline import as_text, lines, sums


def level_at(story: Story, name: str, time: float) -> Level:
    return [level for start, level in story.levels[name] if start <= time][-1]


def eventful(seed: int = 1) -> SwimCluster:
    cluster = swim_cluster(12, seed)
    cluster.schedule(
        [
            Crash("m03", at=5.0),
            Restart("m03", at=40.0),
            Leave("m07", at=8.0),
            Stall("m09", 10.0, 20.0, stopped_s=3.0, running_s=0.1),
        ]
    )
    return cluster


def test_a_converged_cluster_is_settled_from_the_start_and_stays_so() -> None:
    cluster = swim_cluster(30, seed=1)
    assert cluster.names[:2] == ("m00", "m01")
    cluster.run(until=0.0)
    assert cluster.is_settled()
    cluster.run(until=20.0)
    assert cluster.is_settled()
    assert cluster.changes == []


def test_members_that_join_one_by_one_settle() -> None:
    cluster = swim_cluster(15, seed=2, converged=False, join_every_s=0.2)
    cluster.run(until=0.1)
    assert list(cluster.world.up) == ["m00"]
    cluster.run(until=15.0)
    assert cluster.is_settled()
    story = tell(cluster)
    assert level_at(story, "m14", 1.0) is Level.ABSENT
    assert level_at(story, "m14", 14.0) is Level.ALIVE


def test_a_crash_is_noticed_by_everyone_and_a_restart_too() -> None:
    cluster = eventful()
    cluster.run(until=35.0)
    assert set(cluster.states_of("m03").values()) == {"DEAD"}
    assert set(cluster.states_of("m07").values()) == {"LEFT"}
    assert set(cluster.states_of("m01").values()) == {"ALIVE"}
    assert not cluster.world.is_up("m07")
    assert cluster.is_settled()
    cluster.run(until=60.0)
    assert set(cluster.states_of("m03").values()) == {"ALIVE"}
    assert cluster.swim("m03").incarnation > 1
    assert cluster.is_settled()


def test_how_one_saw_the_other_can_be_asked_for_every_time() -> None:
    cluster = eventful()
    cluster.run(until=60.0)
    seen = [cluster.sees_at("m00", "m03", time) for time in (1.0, 34.0, 59.0)]
    assert seen == [MemberState.ALIVE, MemberState.DEAD, MemberState.ALIVE]
    died = next(
        change
        for change in cluster.changes
        if (change.observer, change.subject, change.state) == ("m00", "m03", MemberState.DEAD)
    )
    assert cluster.sees_at("m00", "m03", died.time - 1e-6) is not MemberState.DEAD
    assert cluster.sees_at("m00", "m03", died.time) is MemberState.DEAD
    assert cluster.sees_at("m00", "stranger", 1.0) is None
    # While it is down it sees nobody; then it knows whom it heard of since.
    seen = [cluster.sees_at("m03", "m00", time) for time in (4.0, 5.0, 39.0, 40.0, 59.0)]
    assert seen == [MemberState.ALIVE, None, None, None, MemberState.ALIVE]


def test_two_runs_of_one_seed_are_the_same() -> None:
    def digest(seed: int) -> str:
        cluster = swim_cluster(12, seed, network=Network(loss=0.1))
        trace = Trace(cluster.world)
        cluster.schedule([Crash("m03", at=2.0), Partition((("m00", "m01"),), at=5.0, until=9.0)])
        cluster.run(until=20.0)
        return trace.digest

    assert digest(1) == digest(1) != digest(2)


def test_a_cluster_that_is_shown_shows_its_seed() -> None:
    assert repr(swim_cluster(3, seed=77)) == "SwimCluster(World(seed=77, now=0.000000, members=3))"


def test_the_record_of_changes_is_bounded() -> None:
    cluster = swim_cluster(10, seed=1, changes_max=5)
    cluster.world.crash("m3", at=1.0)
    cluster.run(until=30.0)
    assert len(cluster.changes) == 5
    assert cluster.changes_lost >= 9


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: swim_cluster(0, seed=1), "one member or more, not 0"),
        (lambda: swim_cluster(2, seed=1, names=["a", "a"]), "2 different names, not 1"),
        (lambda: swim_cluster(2, seed=1).fill(["a"], converged=True, join_every_s=1.0), "has its"),
    ],
)
def test_clusters_that_cannot_be_are_refused(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(InvalidRequest, match=message):
        make()


# -- the story ----------------------------------------------------------------------------------------


def test_the_story_tells_what_happened_in_order() -> None:
    cluster = eventful()
    cluster.run(until=60.0)
    story = tell(cluster)
    of_m03 = [moment.kind for moment in story.moments if moment.subject == "m03"]
    assert of_m03 == [
        MomentKind.FAULT, MomentKind.SUSPECTED, MomentKind.DEAD, MomentKind.ALL_KNOW,
        MomentKind.FAULT, MomentKind.BACK,
    ]  # fmt: skip
    assert [moment.time for moment in story.moments] == sorted(moment.time for moment in story.moments)
    assert level_at(story, "m03", 4.0) is Level.ALIVE
    assert level_at(story, "m03", 39.0) is Level.DEAD
    assert level_at(story, "m03", 59.0) is Level.ALIVE
    assert level_at(story, "m07", 59.0) is Level.LEFT
    (found,) = story.summary.detections
    assert (found.subject, found.crashed_at) == ("m03", 5.0)
    assert found.first_suspected_s is not None
    assert found.first_dead_s is not None
    assert found.all_know_s is not None
    assert 0 < found.first_suspected_s < found.first_dead_s < found.all_know_s < 35


def test_the_levels_of_the_story_agree_with_what_the_members_see() -> None:
    cluster = eventful()
    for until in (6.0, 9.0, 12.0, 15.0, 20.0, 30.0, 45.0):
        cluster.run(until=until)
        story = tell(cluster)
        assert_levels_agree(cluster, story)


def test_the_levels_agree_in_a_small_cluster_at_every_moment() -> None:
    # Each counts here: one that starts again must count anew, with what it knows now.
    seen: set[Level] = set()
    for seed in range(4):
        cluster = swim_cluster(4, seed, network=Network(loss=0.3))
        cluster.schedule([Stall("m1", at=2.0, until=5.0), Crash("m2", at=10.0)])
        cluster.schedule([Restart("m2", at=30.0), Crash("m1", at=34.0)])
        for step in range(3_400, 5_500, 4):
            cluster.run(until=step / 100)
            story = tell(cluster)
            assert_levels_agree(cluster, story)
            seen.add(level_at(story, "m1", step / 100))
    assert seen == {Level.ALIVE, Level.SUSPECTED, Level.DISPUTED, Level.DEAD}


def test_of_what_changes_twice_at_one_time_the_last_counts() -> None:
    cluster = swim_cluster(3, seed=1)
    cluster.run(until=5.0)
    for kind, state in (
        (MemberChangeKind.SUSPECTED, MemberState.SUSPECT),
        (MemberChangeKind.DIED, MemberState.DEAD),
    ):
        cluster.changes.append(Change(1.0, "m0", "m1", kind, state, 1))
    story = tell(cluster)
    assert story.levels["m1"] == [(0.0, Level.ALIVE), (1.0, Level.DISPUTED)]
    assert [moment.kind for moment in story.moments] == [MomentKind.SUSPECTED, MomentKind.DEAD]


def assert_levels_agree(cluster: SwimCluster, story: Story) -> None:
    for name in cluster.names:
        times = [time for time, _ in story.levels[name]]
        assert times == sorted(set(times)), name
        states = set(cluster.states_of(name).values())
        level = level_at(story, name, cluster.world.now)
        if level is Level.ALIVE:
            assert states == {"ALIVE"}, name
        elif level is Level.SUSPECTED:
            assert "SUSPECT" in states, name
            assert states <= {"SUSPECT", "ALIVE"}, name
        elif level is Level.DEAD:
            assert states == {"DEAD"}, name
        elif level is Level.LEFT:
            assert states == {"LEFT"}, name
        else:
            assert states & {"DEAD", "LEFT"}, name
            assert states & {"ALIVE", "SUSPECT"}, name


def test_a_crash_nobody_had_time_to_notice_has_no_detection_times() -> None:
    cluster = swim_cluster(10, seed=1)
    cluster.world.crash("m3", at=9.999)
    cluster.run(until=10.0)
    (found,) = tell(cluster).summary.detections
    assert (found.first_suspected_s, found.first_dead_s, found.all_know_s) == (None, None, None)


def test_deaths_of_members_with_a_fault_are_no_false_positives() -> None:
    cluster = eventful()
    cluster.run(until=60.0)
    summary = tell(cluster).summary
    assert (summary.false_positives, summary.false_at_healthy, summary.wrongly_dead) == (0, 0, 0)
    assert summary.suspicions >= 11


def test_deaths_of_members_that_nothing_is_wrong_with_are_false_positives() -> None:
    # Cut off without a fault of its own: as if the network did it and nobody said so.
    cluster = swim_cluster(10, seed=1)
    cluster.world.links.set_loss(1.0, ["m4"])
    cluster.run(until=60.0)
    summary = tell(cluster).summary
    # Everyone else holds it for dead; what it thinks of the others counts as well.
    assert summary.false_positives == summary.false_at_healthy >= 9
    assert summary.wrongly_dead >= 9


def test_a_partition_makes_members_disputed_and_healing_brings_them_back() -> None:
    cluster = swim_cluster(12, seed=4)
    cluster.world.partition(cluster.names[:5], at=5.0, until=45.0)
    cluster.run(until=40.0)
    assert cluster.sees_at("m00", "m11", 40.0) is MemberState.DEAD
    assert cluster.sees_at("m00", "m01", 40.0) is MemberState.ALIVE
    cluster.run(until=120.0)
    assert cluster.is_settled()
    story = tell(cluster)
    assert level_at(story, "m00", 44.0) is Level.DISPUTED
    assert level_at(story, "m00", 119.0) is Level.ALIVE
    assert story.summary.false_positives == 0
    texts = [line.text for line in lines(story)]
    assert "partition 5 | the rest until 45 s" in texts
    assert "the partition heals" in texts
    assert any(text.startswith("12 members are back for everyone") for text in texts)
    assert len(texts) < 15


def test_a_long_timeline_leaves_out_its_middle_and_says_so() -> None:
    cluster = swim_cluster(20, seed=1)
    cluster.schedule([Stall("m03", at, at + 0.01) for at in range(1, 19)])
    cluster.run(until=20.0)
    told = lines(tell(cluster), lines_max=10)
    assert len(told) == 11
    assert told[5].text == "(26 lines are left out here)"
    assert (told[0].time, told[-1].time) == (1.0, 18.01)


def test_the_text_has_the_seed_and_the_sums() -> None:
    cluster = eventful(seed=99)
    cluster.run(until=60.0)
    story = tell(cluster)
    text = as_text(story)
    assert "12 for 60 s, seed 99" in text
    assert "crash of m03" in text
    assert "everyone knows that m07 left" in text
    rows = dict(sums(story.summary))
    assert rows["crashes"] == "1"
    assert rows["wrongly dead now"] == "0"
    counters = cluster.world.counters()
    assert rows["packets"] == f"{counters.packets_sent / 720:.2f} per member and second"
