"""A run as lines of text: time, kind, and what happened.

Between two faults, moments of one kind about many members become one line: a partition makes every
member a suspect, and one line says as much as fifty.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

import msgspec

from quoracy.membership.simulator.story import Moment, MomentKind, Story, Summary, duration

__all__ = ["Line", "as_text", "lines", "sums"]

_FEW = 4
_MANY = {
    MomentKind.SUSPECTED: "{} times someone is suspected",
    MomentKind.REFUTED: "{} times a suspicion is over",
    MomentKind.DEAD: "{} members are dead or gone to some",
    MomentKind.ALL_KNOW: "{} members are dead or gone to everyone",
    MomentKind.BACK: "{} members are back for everyone",
}


class Line(msgspec.Struct, frozen=True):
    """One line; `until` is later than `time` if it summarises several moments."""

    time: float
    until: float
    kind: MomentKind
    text: str


def lines(story: Story, *, lines_max: int = 200) -> list[Line]:
    """What happened, oldest first; beyond `lines_max` the middle is left out.

    >>> from quoracy.membership.simulator.story import tell
    >>> from quoracy.membership.simulator.swim_cluster import swim_cluster
    >>> cluster = swim_cluster(8, seed=3)
    >>> cluster.world.partition(["m0"], at=2.0, until=3.0)
    >>> cluster.run(until=3.5)
    >>> [line.text for line in lines(tell(cluster)) if line.kind is MomentKind.FAULT]
    ['partition 1 | the rest until 3 s']
    """
    made: list[Line] = []
    group: list[Moment] = []
    for moment in story.moments:
        if moment.kind in (MomentKind.FAULT, MomentKind.HEALED):
            made.extend(_grouped(group))
            group.clear()
            made.append(Line(moment.time, moment.time, moment.kind, moment.text))
        else:
            group.append(moment)
    made.extend(_grouped(group))
    if len(made) > lines_max:
        head, tail = made[: lines_max // 2], made[len(made) - lines_max // 2 :]
        middle = made[len(head) : len(made) - len(tail)]
        left_out = f"({len(middle):,} lines are left out here)"
        made = [*head, Line(middle[0].time, middle[-1].until, MomentKind.FAULT, left_out), *tail]
    return made


def sums(summary: Summary) -> list[tuple[str, str]]:
    """The summary as rows of two columns."""
    rows = [("members", f"{summary.members:,} for {summary.seconds:g} s, seed {summary.seed}")]
    found = summary.detections
    if found:
        rows.append(("crashes", str(len(found))))
        rows.append(("first suspected", _spread([each.first_suspected_s for each in found])))
        rows.append(("first dead", _spread([each.first_dead_s for each in found])))
        rows.append(("all know", _spread([each.all_know_s for each in found])))
    rows += [
        ("suspicions", f"{summary.suspicions:,}"),
        ("false positives", _false(summary)),
        ("wrongly dead now", f"{summary.wrongly_dead:,}"),
        ("packets", f"{summary.packets_per_member_s:.2f} per member and second"),
        ("streams", f"{summary.streams_per_member_s:.3f} per member and second"),
        ("bytes", f"{summary.bytes_per_member_s:,.0f} per member and second"),
    ]
    return rows


def as_text(story: Story) -> str:
    """The timeline and the sums, for a log or a document."""
    told = [f"{line.time:9.3f}  {line.kind.value:<9}  {line.text}" for line in lines(story)]
    rows = sums(story.summary)
    width = max(len(label) for label, _ in rows)
    return "\n".join([*told, "", *(f"{label:<{width}}  {value}" for label, value in rows)])


def _grouped(moments: Sequence[Moment]) -> Iterator[Line]:
    kinds: dict[MomentKind, list[Moment]] = {}
    for moment in moments:
        kinds.setdefault(moment.kind, []).append(moment)
    made: list[Line] = []
    for kind, same in kinds.items():
        if len(same) <= _FEW:
            made.extend(Line(moment.time, moment.time, kind, moment.text) for moment in same)
            continue
        subjects = list(dict.fromkeys(moment.subject for moment in same))
        count = len(same) if kind in (MomentKind.SUSPECTED, MomentKind.REFUTED) else len(subjects)
        named = ", ".join(subjects[:3]) + (
            f" and {len(subjects) - 3} more" if len(subjects) > 3 else ""
        )
        text = f"{_MANY[kind].format(count)}, until {same[-1].time:.3f} s: {named}"
        made.append(Line(same[0].time, same[-1].time, kind, text))
    # Stable: lines of one time stay in the order in which it happened.
    yield from sorted(made, key=lambda line: line.time)


def _false(summary: Summary) -> str:
    if not summary.false_positives:
        return "none"
    return f"{summary.false_positives:,}, {summary.false_at_healthy:,} at healthy members"


def _spread(seconds: Sequence[float | None]) -> str:
    """One number, or the minimum, the maximum and the median of several."""
    known = sorted(each for each in seconds if each is not None)
    if not known:
        return "never"
    missing = len(seconds) - len(known)
    also = f", {missing} never" if missing else ""
    if len(known) == 1:
        return f"after {duration(known[0])}{also}"
    middle = statistics.median(known)
    return f"after {duration(known[0])} to {duration(known[-1])}, median {duration(middle)}{also}"
