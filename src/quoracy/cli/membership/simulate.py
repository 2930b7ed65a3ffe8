"""`quoracy simulate`: a simulated cluster of SWIM members with faults, as a timeline and a picture."""

from __future__ import annotations

import random
import re
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from quoracy.cli.exits import Exit
from quoracy.cli.output import Column, Form, Output, output_options, progress_bar
from quoracy.cli.parameters import read_duration

if TYPE_CHECKING:
    from quoracy.membership.simulator.faults import Fault
    from quoracy.membership.simulator.story import Story
    from quoracy.membership.simulator.swim_cluster import SwimCluster

__all__ = ["command"]


_SLICES = 200
_SLOW_FROM_S = 5.0
# The slow members of the Lifeguard paper: they neither send nor read for long, then do for a moment.
_STOPPED_S, _RUNNING_S = 10.0, 0.5

_SPAN = r"(\d+(?:\.\d+)?)(?:-(\d+(?:\.\d+)?))?"
_CRASH = re.compile(rf"(\d+)@{_SPAN}")
_PARTITION = re.compile(rf"([\d.]+%?)@{_SPAN}")
_SLOW = re.compile(rf"([\d.]+%?)(?:@{_SPAN})?")


class _Some(NamedTuple):
    """A number or a share of members, from one time on, perhaps until another."""

    amount: float
    start: float
    end: float | None


def _share(text: str) -> float:
    """`5%` or `0.05`."""
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise click.BadParameter(f"{text!r} is not a share. Write 0.05 or 5%.")
    return value


def _span(found: re.Match[str], first: int) -> tuple[float, float | None]:
    start, end = float(found[first]), None if found[first + 1] is None else float(found[first + 1])
    if end is not None and end <= start:
        raise click.BadParameter(f"{found[0]!r} ends before it begins. Write FROM-UNTIL, as in 10-30.")
    return start, end


def _read_crash(text: str) -> _Some:
    found = _CRASH.fullmatch(text)
    if found is None:
        raise click.BadParameter(
            f"{text!r} is not COUNT@SECONDS. Write 3@10, or 3@10-30 to start them again at 30 s."
        )
    return _Some(int(found[1]), *_span(found, 2))


def _read_partition(text: str) -> _Some:
    found = _PARTITION.fullmatch(text)
    if found is None or (span := _span(found, 2))[1] is None:
        raise click.BadParameter(f"{text!r} is not SHARE@FROM-UNTIL. Write 0.5@10-30, or 50%@10-30.")
    return _Some(_share(found[1]), *span)


def _read_slow(text: str) -> _Some:
    found = _SLOW.fullmatch(text)
    if found is None:
        raise click.BadParameter(f"{text!r} is not SHARE. Write 5%, or 5%@10-30 for a while only.")
    if found[2] is None:
        return _Some(_share(found[1]), _SLOW_FROM_S, None)
    return _Some(_share(found[1]), *_span(found, 2))


def _read_picture(text: str) -> Path:
    path = Path(text)
    if path.suffix.lower() != ".svg":
        raise click.BadParameter(f"pictures are SVG: name it {path.with_suffix('.svg').name!r}.")
    if not path.parent.is_dir():
        raise click.BadParameter(f"there is no directory {str(path.parent)!r}.")
    return path


@click.command("simulate")
@click.option(
    "--members",
    type=click.IntRange(2, 10_000),
    default=50,
    show_default=True,
    metavar="N",
    help="How many members.",
)
@click.option(
    "--seconds",
    type=read_duration,
    default="60s",
    show_default=True,
    metavar="TIME",
    help="How much simulated time.",
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=None,
    metavar="N",
    help="Repeat this run; without it, each run is another one.",
)
@click.option("--loss", type=_share, default="0", metavar="SHARE", help="Datagrams lost: 0.05 or 5%.")
@click.option(
    "--crash",
    "crashes",
    type=_read_crash,
    multiple=True,
    metavar="COUNT@T[-T]",
    help="COUNT members crash at a time, and perhaps start again at another.",
)
@click.option(
    "--leave", "leaves", type=_read_crash, multiple=True, metavar="COUNT@T", help="COUNT members leave."
)
@click.option(
    "--partition",
    "partitions",
    type=_read_partition,
    multiple=True,
    metavar="SHARE@T-T",
    help="This share is cut off from the rest for a while.",
)
@click.option(
    "--slow",
    type=_read_slow,
    default=None,
    metavar="SHARE[@T-T]",
    help=f"This share is held up for {_STOPPED_S:g} s, free for {_RUNNING_S:g} s, and so on.",
)
@click.option("--joining", is_flag=True, help="Begin empty: members join one by one.")
@click.option("--no-lifeguard", is_flag=True, help="SWIM as first published, for comparison.")
@click.option("--picture", type=_read_picture, default=None, metavar="FILE.svg", help="Draw the run.")
@click.option(
    "--animate", type=_read_picture, default=None, metavar="FILE.svg", help="Draw it as an animation."
)
@output_options(Form.JSON)
def command(
    members: int,
    seconds: float,
    seed: int | None,
    loss: float,
    crashes: Sequence[_Some],
    leaves: Sequence[_Some],
    partitions: Sequence[_Some],
    slow: _Some | None,
    joining: bool,
    no_lifeguard: bool,
    picture: Path | None,
    animate: Path | None,
    output: Output,
) -> int:
    """Run a cluster of SWIM members in a simulated network and show what happened.

    It is the same code that real members run; only time and the network are made up. The same seed and
    the same options give the same run, so a run worth showing can be shown again.

    A false positive is a member that was declared dead although nothing was wrong with it.

    \b
    Examples:
      quoracy simulate --crash 3@10
      quoracy simulate --members 200 --loss 5% --partition 50%@10-30 --picture run.svg
      quoracy simulate --slow 5% --no-lifeguard --seed 7
    """
    from quoracy.membership.settings import SwimSettings
    from quoracy.membership.simulator.network import Network
    from quoracy.membership.simulator.story import tell
    from quoracy.membership.simulator.swim_cluster import swim_cluster

    if seconds <= 0:
        raise click.BadParameter("a run takes more than 0 s.", param_hint="--seconds")
    seed = secrets.randbelow(1_000_000) if seed is None else seed
    settings = SwimSettings().without_lifeguard() if no_lifeguard else SwimSettings()
    cluster = swim_cluster(
        members, seed, settings=settings, network=Network(loss=loss), converged=not joining
    )
    cluster.schedule(_faults(cluster.names, seed, seconds, crashes, leaves, partitions, slow))
    _run(cluster, seconds)
    story = tell(cluster)
    _draw(story, picture, animate)
    _show(output, story)
    return Exit.DONE


def _faults(
    names: Sequence[str],
    seed: int,
    seconds: float,
    crashes: Sequence[_Some],
    leaves: Sequence[_Some],
    partitions: Sequence[_Some],
    slow: _Some | None,
) -> list[Fault]:
    """The faults of the options; the seed decides which members they hit."""
    from quoracy.membership.simulator.faults import Crash, Leave, Partition, Restart, Stall

    rng = random.Random(f"{seed}/simulate")
    # No member is in two of these, and the first one, which new members ask, is in none.
    spare = rng.sample(names[1:], len(names) - 1)

    def some(count: int, option: str) -> list[str]:
        if count > len(spare):
            raise click.BadParameter(
                f"{count} members are too many: of {len(names)} there are {len(spare)} left for it.",
                param_hint=option,
            )
        return sorted(spare.pop() for _ in range(count))

    faults: list[Fault] = []
    for count, start, end in crashes:
        for name in some(int(count), "--crash"):
            faults.append(Crash(name, _within(start, seconds, "--crash")))
            if end is not None:
                faults.append(Restart(name, end))
    for count, start, _ in leaves:
        faults += [
            Leave(name, _within(start, seconds, "--leave")) for name in some(int(count), "--leave")
        ]
    if slow is not None:
        until = seconds if slow.end is None else min(slow.end, seconds)
        for name in some(round(slow.amount * len(names)), "--slow"):
            start = _within(slow.start, seconds, "--slow")
            faults.append(Stall(name, start, until, _STOPPED_S, _RUNNING_S, timers_run=True))
    for share, start, end in partitions:
        side = names[: max(1, min(len(names) - 1, round(share * len(names))))]
        assert end is not None
        faults.append(Partition((tuple(side),), _within(start, seconds, "--partition"), end))
    return faults


def _within(start: float, seconds: float, option: str) -> float:
    if start >= seconds:
        raise click.BadParameter(
            f"{start:g} s is after the end of the run. Give --seconds more than {start:g}.",
            param_hint=option,
        )
    return start


def _run(cluster: SwimCluster, seconds: float) -> None:
    with progress_bar("Simulating") as advance:
        for number in range(1, _SLICES + 1):
            cluster.run(until=seconds * number / _SLICES)
            advance(number, _SLICES)


def _draw(story: Story, picture: Path | None, animate: Path | None) -> None:
    if picture is not None:
        from quoracy.membership.simulator.picture import picture as draw

        picture.write_text(draw(story), encoding="utf-8")
    if animate is not None:
        from quoracy.membership.simulator.animation import animation

        animate.write_text(animation(story), encoding="utf-8")


def _show(output: Output, story: Story) -> None:
    from quoracy.membership.simulator.timeline import lines, sums

    told = lines(story)
    if output.is_json:
        import msgspec

        timeline = [
            {"time": round(line.time, 6), "kind": line.kind.value, "text": line.text} for line in told
        ]
        output.document({**msgspec.to_builtins(story.summary), "timeline": timeline})
        return
    rows = [(f"{line.time:.3f}", line.kind.value, line.text) for line in told]
    if rows:
        output.table((Column("seconds", right=True), Column("what", "cyan"), Column("")), rows)
        output.line("")
    output.table((Column("", "cyan"), Column("")), sums(story.summary))
