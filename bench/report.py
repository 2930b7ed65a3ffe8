"""Results for people: tables on the terminal and in a document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from bench.results import Section, Table, Target

__all__ = ["as_json", "as_markdown", "as_text", "markdown_table", "target_table", "with_sections"]

_INTRODUCTION = """\
# Benchmarks

`make bench` measures all of this in a few minutes and writes this page. Quoracy and what it is compared
with take short turns in the same process on the same disk, so that whatever else the machine does hits
both; a rate is the median of all rounds, a ratio the median of the ratios within each round. Rates say
more about the machine than about Quoracy; ratios carry over.

![Puts by number of writers, opening time and memory by number of keys](benchmarks/store.png)
"""


def as_text(sections: Sequence[Section], machine: Mapping[str, str]) -> str:
    """For a terminal."""
    parts = []
    for section in sections:
        parts.append(f"{section.title}\n{'=' * len(section.title)}")
        parts += ["\n".join(_aligned(table, "  ")) for table in section.tables]
    if targets := _all_targets(sections):
        parts.append("Targets\n=======")
        parts.append("\n".join(_aligned(target_table(targets), "  ")))
    parts.append("\n".join(f"{name}: {value}" for name, value in machine.items()))
    return "\n\n".join(parts)


def as_markdown(sections: Sequence[Section], machine: Mapping[str, str]) -> str:
    """For the documents."""
    parts = [_INTRODUCTION.rstrip()]
    parts.append(markdown_table(Table(["", ""], [[*item] for item in machine.items()])))
    if targets := _all_targets(sections):
        parts += ["## Targets", markdown_table(target_table(targets))]
    parts += [_markdown_section(section) for section in sections]
    return "\n\n".join(parts) + "\n"


def with_sections(document: str, sections: Sequence[Section], machine: Mapping[str, str]) -> str:
    """A document of an earlier run with these sections in place of its own, or at its end.

    Each says when it was measured, and what its targets are: above are those of the earlier run.
    """
    head, *old = document.rstrip("\n").split("\n\n## ")
    parts = {part.partition("\n")[0]: part for part in old}
    when = f"Measured on {machine['date']} at {machine['commit']}, by itself."
    for section in sections:
        text = _markdown_section(section, when)
        if section.targets:
            text += "\n\n" + markdown_table(target_table(section.targets))
        parts[section.title] = text.removeprefix("## ")
    return "\n\n## ".join([head, *parts.values()]) + "\n"


def _markdown_section(section: Section, when: str = "") -> str:
    parts = [f"## {section.title}", *([when] if when else []), section.note]
    return "\n\n".join([*parts, *map(markdown_table, section.tables)])


def as_json(sections: Sequence[Section], machine: Mapping[str, str]) -> dict[str, object]:
    """For programs."""
    return {
        "machine": dict(machine),
        "targets": [
            {
                "what": target.what,
                "value": target.value,
                "limit": target.limit,
                "at_least": target.at_least,
                "unit": target.unit,
                "met": target.met,
            }
            for target in _all_targets(sections)
        ],
        "results": {section.name: dict(section.data) for section in sections},
    }


def _all_targets(sections: Sequence[Section]) -> list[Target]:
    return [target for section in sections for target in section.targets]


def target_table(targets: Sequence[Target]) -> Table:
    return Table(
        ["target", "wanted", "reached", "met"],
        [
            [target.what, target.wanted, target.reached, "yes" if target.met else "NO"]
            for target in targets
        ],
    )


def markdown_table(table: Table) -> str:
    lines = list(_aligned(table, " | "))
    widths = _widths(table)
    rule = [":" + "-" * (widths[0] - 1), *("-" * (width - 1) + ":" for width in widths[1:])]
    lines.insert(1, " | ".join(rule))
    return "\n".join(f"| {line} |" for line in lines)


def _aligned(table: Table, between: str) -> Iterator[str]:
    widths = _widths(table)
    for row in (table.columns, *table.rows):
        first, *others = row
        cells = [first.ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        yield between.join(cells)


def _widths(table: Table) -> list[int]:
    columns = zip(table.columns, *table.rows, strict=True)
    return [max(3, *map(len, column)) for column in columns]
