"""Writes docs/membership-figures.md: what was measured, what it means, and what the papers report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from bench import membership_gossip, membership_phi, membership_plot
from bench.membership import CRASHES_MIN
from bench.report import markdown_table, target_table
from bench.results import Section, Table

__all__ = ["text_of", "write"]

_HEAD = """\
# Membership: figures

`make bench ARGS="--only membership"` measures the figures on this page and writes them with
`--document`, except for those that are said to be run separately. Clusters are simulated with the code
that real members run, from a seed: the figures are the same on every machine, except for processor
times and the section on real agents. The page says what was counted, how it compares with the SWIM and
Lifeguard papers, and where a goal is missed.

![What a member sends, first notice, until all know, false positives](benchmarks/membership.png)
"""

_LOAD = """\
## What a member sends

A member sends a ping each second and answers one ping per second on average: two packets, in a cluster
of any size. That is the load of an idle cluster. Comparisons of whole tables go over streams; they are
rarer in larger clusters, and cost eleven bytes if both tables are equal. Names and addresses have six
characters here. The runtime adds 6 bytes to each packet, or 40 with a key.

A crash is news. *For a crash* is what each member additionally sends because of it, from the crash
until the last news about it; each crash follows when the previous one is over. Each member passes
each piece of news on 4 * ceil(log10(n + 1)) times, which is 8, 12, 16 and 16 for these sizes, and a
crash causes up to four pieces: a suspicion, two confirmations, a death. So this part grows with log
n, as it must.

The SWIM paper ([Das, Gupta and Motivala,
2002](http://www.cs.cornell.edu/~asdas/research/dsn02-SWIM.pdf), section 5) measured a prototype on a
cluster of PCs, with a period of 2 s, one helper, and news on at most 3 * ceil(log(n + 1)) messages of
each member. What it claims is that neither the expected load of a member nor the expected time to the
first detection depends on the size; the first columns here and of the next table show the same up to
8,192. Its plots are not repeated here."""

_CRASHES = """\
## How soon a crash is noticed

*Probed in* counts the intervals from the crash to the first probe of the crashed member, including
the last one in full. The SWIM paper expects e/(e-1) = 1.58 of them: in each interval every other
member picks it with a probability of 1/(n - 1), so the probability that none picks it is about 1/e.
We count it in two ways: in an idle cluster, for any moment at which a member might have crashed
(thousands of moments), and for real crashes. Large clusters have too few of those for this column,
and the other times in their rows are also averages of few. *First probe* is the same as a time; one
interval is expected.

*First suspicion* is one interval later: a probe takes that long if nothing comes back, from helpers
or over a stream. If only the process died, its machine refuses the stream; then a probe ends at once,
after about 0.6 of an interval, if the helpers got no answer either.

*To all* is the time from the first member that knows to the last, without other news: a member with no
other news passes a piece on at once, one that is already sending with its next packet, up to 0.2 s
later. It grows by about the same amount whenever the size grows eightfold: linear in log n. With many
crashes half a second apart it takes longer and the line bends up: in such a run it was 0.78 at 1,024
members and 1.03 at 8,192, 1.67 times as much for a doubling as between 16 and 128.

*First death* is the end of the suspicion: at least 4 * log10(n) intervals, and up to six times that
while few members confirm it. With Lifeguard's confirmations it is close to the minimum."""

_ALARMS = """\
## False alarms

A false positive is a healthy member that another member believes to be dead. FP counts them at all
members, FP- only at healthy members; one rumour that reaches a hundred members counts a hundred
times. *SWIM* is this implementation without Lifeguard: a fixed suspicion of 4 * log10(n)
intervals, no nacks, no local health, no buddy. *Lifeguard* is all of that. *Ours* adds `minds_pauses`,
which is not in the paper: a member whose timers ran late extends all deadlines by the delay.

**Loss** alone rarely causes a false death, even without Lifeguard: a suspect learns of the suspicion
within a second, and its refutation spreads as fast. Up to 5 %, helpers and the stream probe prevent all
suspicions. Without the stream probe (*datagrams only*) there are several times as many suspicions. At
20 %, SWIM has a few false deaths, which Lifeguard's longer suspicion avoids.

**Of 8,192 members**, 20 % loss and slow ones have a table of their own. With such loss a hundred are
suspected each second, and everyone hears of each and of its answer, which is n * n events: too long
for `make bench`. `python -m bench.membership_false --members 8192` counts them, with
`--loss 0.2 --seconds 25` or `--slow 0.05`, and `--variant SWIM` or `ours`. Each was run once, loss in
steps that showed how far it was; it took 27 and 22 minutes of one core that others used too. A
suspicion lasts at least 15.65 s there, so in 25 s only those of the
first nine can end in a death. It is also more news than there is room for: 200 pieces a second, 16
times each, for some 17 packets of 75 pieces, which is probably why answers come too late: SWIM has
deaths by the thousand, and ours are few, but not none. The 135 with slow members were all at slow ones.

**Slow members** are what Lifeguard is for. The delays are chosen so that SWIM shows many false
positives: a member that gets to run for longer than a round trip between its pauses harms hardly
anyone either way. And zero is not a promise: 64 members of which 5 % were blocked for 30 s at a time
gave 3 with all of it, and 4,281 without. *Blocked* is slow processing of messages, which is
what the paper varies: what a slow member sends and receives is held up for a while, again and again,
while its timers go on. It then suspects others whose answers it has not read, and lets their time run
out before it reads their objection. *Stopped* is a process that stands still, timers and all (a
virtual machine that is moved, a long collection of garbage). It does less harm, since its own clock
stands still too; there `minds_pauses` takes away even the suspicions."""

# What takes too long to be run with the rest, as it was printed.
_ALONE = Table(
    [
        "false alarms, 8,192 members",
        *(f"{name} {what}" for name in ("SWIM", "ours") for what in ("suspected", "FP", "FP-")),
    ],
    [
        ["20% loss; 25 s", "18,114,001", "5,096", "5,096", "17,397,955", "39", "39"],
        [
            "5 % slow: blocked 16 s, on 100 ms; 30 s",
            *("7,299,336", "135", "0"),
            *("1,986,830", "0", "0"),
        ],
    ],
)

_LIFEGUARD = """\
## Next to the Lifeguard paper

The paper ([Dadgar, Phillips and Currey](https://arxiv.org/abs/1707.00788v2)) counts the same two
things at Consul agents, some of which are made to process messages slowly. Its table of false
positives, as a
[review](https://github.com/ThuyenPV/ThuyenPV.github.io/blob/ca198f77c95e3247348618cbba4e048c2dbd15c8/assets/img/2020-07-28/benchmark.png)
shows it:"""

_LIFEGUARD_TABLE = Table(
    ["Lifeguard paper", "FP", "FP-", "FP, % of SWIM", "FP-, % of SWIM"],
    [
        ["SWIM", "339,002", "1,326", "100.00", "100.00"],
        ["LHA-Probe", "229,574", "436", "67.72", "32.88"],
        ["LHA-Suspicion", "10,174", "89", "3.00", "6.71"],
        ["Buddy System", "318,935", "591", "94.08", "44.57"],
        ["Lifeguard", "5,193", "25", "1.53", "1.89"],
    ],
)

_LIFEGUARD_MEANS = """\
So Lifeguard leaves one false positive in 65, and one in 53 at healthy members. According to [the same
review](https://github.com/ThuyenPV/ThuyenPV.github.io/blob/ca198f77c95e3247348618cbba4e048c2dbd15c8/assets/img/2020-07-28/message_load_benchmark.png),
it sends 110.59 % of SWIM's messages and 97.97 % of its bytes. The [first
version](https://arxiv.org/abs/1707.00788v1) speaks of a modest increase of detection time; by other
settings, of a median detection time 45 % shorter with 3 times fewer false positives at healthy
members. Here the four rows with blocked members that were run with all three variants have 8,485
false positives with SWIM, 7,566 of them at members that are well, and none with Lifeguard. Our
members are simulated, with delays of our choice, so the counts cannot be compared, only the direction
and the order of magnitude. Our goal was 20 times fewer."""


def write(parts: Sequence[Section], machine: Mapping[str, str], docs: Path) -> list[Path]:
    """Draw the pictures and write the page; what was written."""
    swim, *others = parts
    caption = f"{machine['Python']}; {machine['commit']}; simulated, seeded"
    pictures = docs / "benchmarks"
    pictures.mkdir(parents=True, exist_ok=True)
    written = [pictures / "membership.png"]
    membership_plot.draw(swim.data, caption, written[0], crashes_min=CRASHES_MIN)
    for section in others:
        if section.name == "phi":
            written.append(pictures / "phi.png")
            membership_phi.draw(section.data, caption, written[-1])
        elif section.name == "gossip":
            written.append(pictures / "gossip.png")
            membership_gossip.draw(section.data, caption, written[-1])
    page = docs / "membership-figures.md"
    page.write_text(text_of(parts, machine), encoding="utf-8")
    return [*written, page]


def text_of(parts: Sequence[Section], machine: Mapping[str, str]) -> str:
    """The page."""
    swim, *others = parts
    load, crashes, alarms = swim.tables
    targets = [target for section in parts for target in section.targets]
    texts = [
        _HEAD.rstrip(),
        "## Goals",
        markdown_table(target_table(targets)),
        *(_LOAD, markdown_table(load)),
        *(_CRASHES, markdown_table(crashes)),
        *(_ALARMS, markdown_table(alarms), markdown_table(_ALONE)),
        *(_LIFEGUARD, markdown_table(_LIFEGUARD_TABLE), _LIFEGUARD_MEANS),
    ]
    for section in others:
        texts += [f"## {section.title}", section.note]
        if section.name == "gossip" and "gossip.png" not in section.note:
            texts.append("![Rounds until all know, by members](benchmarks/gossip.png)")
        texts += map(markdown_table, section.tables)
    texts.append(f"Measured on {machine['date']} at {machine['commit']}, {machine['processor']}.")
    return "\n\n".join(texts) + "\n"
