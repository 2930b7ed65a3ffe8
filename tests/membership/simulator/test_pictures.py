"""The pictures: well-formed, self-contained, and they show what happened."""

from __future__ import annotations

import itertools
import re
from xml.etree import ElementTree

import pytest

from quoracy.membership.simulator import (
    Crash,
    Leave,
    Loss,
    Network,
    OneWay,
    Partition,
    Restart,
    Slow,
    Stall,
    swim_cluster,
)
from quoracy.membership.simulator.animation import animation
from quoracy.membership.simulator.drawing import COLOURS, MEMBERS_MAX, shown
from quoracy.membership.simulator.picture import picture
from quoracy.membership.simulator.story import Level, Story, tell

SVG = "{http://www.w3.org/2000/svg}"
NASTY = ["<a>", 'b"&', "ctrl-ü", "\x01\n", "d" * 60]


def story_of(count: int, *, names: list[str] | None = None, seconds: float = 30.0) -> Story:
    cluster = swim_cluster(count, seed=1, names=names, network=Network(loss=0.02))
    first, last = cluster.names[0], cluster.names[-1]
    cluster.schedule(
        [
            Crash(last, at=2.0),
            Restart(last, at=25.0),
            Stall(first, 3.0, 9.0),
            Partition(((first,),), at=12.0, until=16.0),
            Loss(0.3, at=14.0, until=18.0),
        ]
    )
    cluster.run(until=seconds)
    return tell(cluster)


@pytest.fixture(scope="module")
def story() -> Story:
    return story_of(10)


def fills(root: ElementTree.Element, tag: str = "rect") -> set[str]:
    return {each.get("fill", "") for each in root.iter(f"{SVG}{tag}")}


def texts(root: ElementTree.Element) -> list[str]:
    return [each.text or "" for each in root.iter(f"{SVG}text")]


@pytest.mark.parametrize("draw", [picture, animation])
@pytest.mark.parametrize("count", [2, 5, 100, 201])
def test_pictures_are_documents_of_their_own_whatever_the_size(draw: object, count: int) -> None:
    assert callable(draw)
    drawn = draw(story_of(count, seconds=5.0))
    root = ElementTree.fromstring(drawn)
    assert root.tag == f"{SVG}svg"
    assert not set(re.findall(r"https?://[^\"' <]+", drawn)) - {"http://www.w3.org/2000/svg"}
    assert "<script" not in drawn
    assert f"{count} members" in texts(root)[0]
    assert "seed 1" in texts(root)[0]


@pytest.mark.parametrize("draw", [picture, animation])
def test_names_cannot_break_a_picture(draw: object) -> None:
    assert callable(draw)
    root = ElementTree.fromstring(draw(story_of(5, names=NASTY)))
    assert {"<a>", 'b"&', "ctrl-ü", "??"} <= set(texts(root))
    assert any(text.startswith("dddd") and text.endswith("…") for text in texts(root))


def test_the_picture_shows_who_was_seen_how_and_what_was_true(story: Story) -> None:
    root = ElementTree.fromstring(picture(story))
    assert set(story.names) <= set(texts(root))
    assert {"partition 1 | the rest", "loss of 30%"} <= set(texts(root))
    for level in (Level.ALIVE, Level.SUSPECTED, Level.DEAD):
        # One is in the legend.
        rects = [each for each in root.iter(f"{SVG}rect") if each.get("fill") == COLOURS[level]]
        assert len(rects) > 1, level
    crosses = [each for each in root.iter(f"{SVG}path") if each.get("stroke") == "#000000"]
    # In the legend a cross and a diamond, and one cross for the crash.
    assert len(crosses) == 3


def test_the_picture_has_each_level_where_it_was(story: Story) -> None:
    root = ElementTree.fromstring(picture(story))
    axis = next(root.iter(f"{SVG}line"))
    left, right = float(axis.get("x1", "0")), float(axis.get("x2", "0"))
    scale = (right - left) / 30.0
    rows = [each for each in root.iter(f"{SVG}rect") if float(each.get("height", "0")) == 23.0]
    row = max(float(each.get("y", "0")) for each in rows)  # that of m9, the last
    drawn = {
        (each.get("fill"), round(float(each.get("x", "0"))), round(float(each.get("width", "0"))))
        for each in rows
        if float(each.get("y", "0")) == row
    }
    line = [*story.levels["m9"], (30.0, Level.ALIVE)]
    assert Level.DEAD in [level for _, level in line]
    for (start, level), (end, _) in itertools.pairwise(line):
        if (end - start) * scale > 1:
            assert (COLOURS[level], round(left + start * scale), round((end - start) * scale)) in drawn


def test_labels_of_the_picture_do_not_touch(story: Story) -> None:
    for count in (10, 60, 200):
        root = ElementTree.fromstring(picture(story_of(count, seconds=3.0)))
        heights = sorted(
            float(each.get("y", "0"))
            for each in root.iter(f"{SVG}text")
            if re.fullmatch(r"m\d+", each.text or "")
        )
        assert len(heights) > 5
        assert min(b - a for a, b in itertools.pairwise(heights)) >= 12.9


def test_everything_is_inside_the_frame() -> None:
    cluster = swim_cluster(6, seed=1)
    cluster.schedule([Loss(0.5, at=9.5, until=10.0), Slow("m1", 0.01, at=1.0), Leave("m2", at=2.0)])
    cluster.schedule(
        [OneWay(("m3",), ("m4",), at=at, until=at + 3.0) for at in (1.0, 1.1, 1.2, 1.3, 1.4)]
    )
    cluster.run(until=10.0)
    root = ElementTree.fromstring(picture(tell(cluster)))
    width, height = float(root.get("width", "0")), float(root.get("height", "0"))
    for each in root.iter(f"{SVG}rect"):
        assert (
            0
            <= float(each.get("x", "0"))
            <= float(each.get("x", "0")) + float(each.get("width", "0"))
            <= width
        )
        assert 0 <= float(each.get("y", "0")) <= height
    # Of five labels at one place four have room.
    assert texts(root).count("blocked: 1 to 1") == 4


def test_the_animation_changes_colours_when_levels_change(story: Story) -> None:
    root = ElementTree.fromstring(animation(story, lasts_s=10.0))
    dots = {
        title.text: dot
        for dot in root.iter(f"{SVG}circle")
        if (title := dot.find(f"{SVG}title")) is not None
    }
    assert set(dots) == set(story.names)
    animate = dots["m9"].find(f"{SVG}animate")
    assert animate is not None
    line = story.levels["m9"]
    assert animate.get("values", "").split(";") == [COLOURS[level] for _, level in line]
    times = [float(each) for each in animate.get("keyTimes", "").split(";")]
    assert times == pytest.approx([time / 30.0 for time, _ in line], abs=1e-4)
    assert animate.get("dur") == "10s"


def test_key_times_of_the_animation_begin_at_zero_and_grow(story: Story) -> None:
    for story_ in (story, story_of(60)):
        for animate in ElementTree.fromstring(animation(story_)).iter(f"{SVG}animate"):
            if animate.get("calcMode") != "discrete":
                continue
            times = [float(each) for each in animate.get("keyTimes", "").split(";")]
            assert times[0] == 0.0
            assert times == sorted(set(times))
            assert times[-1] <= 1.0
            assert len(times) == len(animate.get("values", "").split(";"))


def test_the_animation_tells_time_and_what_happened(story: Story) -> None:
    told = texts(ElementTree.fromstring(animation(story)))
    assert "15.0 s" in told
    assert "crash of m9" in told
    assert "the partition heals" in told


def test_of_more_members_than_fit_those_are_shown_to_whom_something_happened() -> None:
    story = story_of(MEMBERS_MAX + 50, seconds=4.0)
    some = shown(story)
    assert len(some) == MEMBERS_MAX
    assert {story.names[0], story.names[-1]} <= set(some)
    assert "250 members, 200 of them shown" in picture(story)


def test_levels_differ_in_lightness() -> None:
    def light(colour: str) -> float:
        red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    lights = [
        light(COLOURS[level])
        for level in (Level.ALIVE, Level.SUSPECTED, Level.LEFT, Level.DISPUTED, Level.DEAD)
    ]
    assert all(a - b > 20 for a, b in itertools.pairwise(lights))
