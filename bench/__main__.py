"""Measure, print tables; after a run of everything, write the document and the picture as well."""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

from bench import (
    cell,
    etcd_face,
    housekeeping,
    leases,
    membership,
    puts,
    reads,
    recipes,
    report,
    scale,
    startup,
    watches,
    zookeeper_face,
)
from bench.machine import MEMORY_FILE_SYSTEMS, describe, file_system
from bench.results import Section
from bench.rounds import Settings

BENCHMARKS: dict[str, Callable[[Settings], Section]] = {
    "puts": puts.measure,
    "reads": reads.measure,
    "watches": watches.measure,
    "leases": leases.measure,
    "scale": scale.measure,
    "housekeeping": housekeeping.measure,
    "startup": startup.measure,
    "etcd": etcd_face.measure,
    "zookeeper": zookeeper_face.measure,
    "cell": cell.measure,
    "locks": recipes.measure,
    "membership": membership.measure,
}

_DOCS = Path(__file__).parent.parent / "docs"


def main() -> None:
    options = _options()
    with _data_directory(options.dir) as directory:
        settings = Settings(directory, quick=options.quick)
        if file_system(directory) in MEMORY_FILE_SYSTEMS:
            print(
                "Data goes to memory, not to a disk: durable puts mean nothing here.", file=sys.stderr
            )
        sections = [BENCHMARKS[name](settings) for name in options.only or BENCHMARKS]
        settings.report("")
        machine = describe(settings)
    print(report.as_text(sections, machine))
    results = report.as_json(sections, machine)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    if not (options.quick or options.only):
        _write_documents(sections, machine)
        _write_membership(sections, machine)
    elif options.document:
        page = _DOCS / "benchmarks.md"
        old = page.read_text(encoding="utf-8")
        page.write_text(report.with_sections(old, sections, machine), encoding="utf-8")
        print(f"\nWritten into docs/{page.name}: {', '.join(section.name for section in sections)}")
        _write_membership(sections, machine)


def _write_documents(sections: list[Section], machine: dict[str, str]) -> None:
    from bench import plot

    caption = (
        f"{machine['processor']}; {machine['Python']}; SQLite {machine['SQLite']}; {machine['commit']}"
    )
    (_DOCS / "benchmarks").mkdir(parents=True, exist_ok=True)
    plot.draw(
        {section.name: section.data for section in sections},
        caption,
        _DOCS / "benchmarks" / "store.png",
    )
    (_DOCS / "benchmarks.md").write_text(report.as_markdown(sections, machine), encoding="utf-8")
    print("\nWritten: docs/benchmarks.md, docs/benchmarks/store.png")


def _write_membership(sections: list[Section], machine: dict[str, str]) -> None:
    from bench import membership_page

    for section in sections:
        if isinstance(section, membership.Membership):
            written = membership_page.write(section.parts, machine, _DOCS)
            print(f"Written: {', '.join(str(path.relative_to(_DOCS.parent)) for path in written)}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small and short, to see that it works")
    parser.add_argument(
        "--only",
        action="append",
        choices=BENCHMARKS,
        metavar="NAME",
        help=f"one of {', '.join(BENCHMARKS)}; may be given again",
    )
    parser.add_argument("--dir", type=Path, help="where data goes meanwhile; below build/ if not given")
    parser.add_argument(
        "--document", action="store_true", help="with --only: renew just those sections of the document"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to a file as well")
    return parser.parse_args()


@contextmanager
def _data_directory(parent: Path | None) -> Iterator[Path]:
    # Not the system's temporary directory: that is often in memory, where a sync costs nothing.
    parent = parent or Path("build")
    parent.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="bench-", dir=parent))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    """As Ctrl-C does: servers are stopped and data is removed on the way out."""
    del frame
    sys.exit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _stop)
    try:
        main()
    except KeyboardInterrupt:
        print("\nInterrupted: the servers are stopped and their data is removed.", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)
