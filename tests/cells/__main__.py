"""`python -m tests.cells --seed 7 --schedules 20`: schedules of faults, judged, one line each.

--target etcd runs the same on plain etcd; --only kill-node,bridge takes these faults alone.
Needs root, iproute2 and nftables.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from tests.cells.cell import Cell, Setup, faketime_library
from tests.cells.network import has_netem, why_no_network
from tests.cells.planted import BUGS
from tests.cells.running import Report, run_schedule
from tests.cells.schedule import KINDS, make_plan


def main() -> int:
    options = _options()
    why_not = why_no_network()
    if why_not is not None:
        _say(why_not)
        return 2
    _say(f"delays: {'netem' if has_netem() else 'no netem in this kernel: thin wires instead'}")
    _say(f"clocks: {faketime_library() or 'no libfaketime: not set'}")
    done, failed, checked, events = 0, [], 0, 0
    began = time.monotonic()
    for number in range(options.schedules):
        seed = options.seed + number
        text, report = _one(seed, options)
        if report is not None:
            checked, events = checked + report.checked, events + report.events
        if report is None or report.problems:
            failed.append(seed)
        done += 1
        _say(text)
    _say(
        f"{done} schedules, {checked:,} operations and {events:,} watched revisions checked, "
        f"{len(failed)} with violations {failed or ''} in {time.monotonic() - began:.0f} s"
    )
    return 1 if failed else 0


def _one(seed: int, options: argparse.Namespace) -> tuple[str, Report | None]:
    setup = Setup(
        hosts_count=options.hosts,
        etcd=options.etcd,
        plain=options.target == "etcd",
        node=(sys.executable, "-m", "tests.cells.planted", options.plant)
        if options.plant
        else Setup().node,
    )
    names = Cell.host_names(setup)[:-1]
    kinds = options.only.split(",") if options.only else list(KINDS)
    if faketime_library() is None:
        kinds = [kind for kind in kinds if kind != "clock-step"]
    plan = make_plan(seed, names, kinds=kinds, faults_count=options.faults, plain=setup.plain)
    if options.etcd == "both":
        # etcd 3.5.1 may come back from a kill with less than it had (etcd#13766).
        setup = replace(setup, etcd="3.5" if seed % 2 and not plan.kills_members else "3.4")
    directory = Path(tempfile.mkdtemp(prefix=f"cell-{seed}-", dir=options.directory))
    try:
        report = run_schedule(plan, setup.for_plan(plan), directory, rate=options.rate)
    except Exception as error:  # noqa: BLE001  the next schedule runs all the same
        told = "; ".join(_causes(error))
        return f"{seed:>6}  FAILED  {plan}\n        {told}\n        kept in {directory}", None
    line = (
        f"{seed:>6}  {'FAILED' if report.problems else 'ok':6}  {report.checked:>6,} ops "
        f"{report.events:>7,} events  resumed {report.resumed_s:4.1f} s  took {report.took_s:4.0f} s  "
        f"etcd {setup.etcd}  {plan}"
    )
    for note in report.notes:
        line += f"\n        note: {note}"
    for problem in report.problems:
        line += f"\n        {problem}"
    if report.problems or options.keep:
        line += f"\n        kept in {directory}"
    else:
        shutil.rmtree(directory)
    return line, report


def _causes(error: BaseException) -> list[str]:
    if isinstance(error, BaseExceptionGroup):
        return [cause for each in error.exceptions for cause in _causes(each)]
    return [f"{type(error).__name__}: {error}"]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.cells", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--schedules", type=int, default=1)
    parser.add_argument("--target", choices=("quoracy", "etcd"), default="quoracy")
    parser.add_argument("--etcd", choices=("3.4", "3.5", "both"), default="3.4")
    parser.add_argument("--hosts", type=int, default=3)
    parser.add_argument("--faults", type=int, default=None, help="how many in each schedule")
    parser.add_argument("--only", default="", help="kinds of faults, with commas")
    parser.add_argument("--rate", type=float, default=50.0, help="requests a second of each client")
    parser.add_argument("--plant", choices=BUGS, help="a bug in every node, which must be noticed")
    parser.add_argument("--directory", default=None, help="where data, logs and books go")
    parser.add_argument("--keep", action="store_true", help="also what nothing is wrong with")
    return parser.parse_args()


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
