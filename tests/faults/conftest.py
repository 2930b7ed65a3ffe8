"""What every fault test may ask for: a seed that a failure prints, small disks, system call faults."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.faults.disks import Disk

_SEED = pytest.StashKey[int]()


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """From QUORACY_SEED, or a new one; printed when the test fails."""
    given = os.environ.get("QUORACY_SEED")
    seed = int(given) if given else random.SystemRandom().getrandbits(32)
    request.node.stash[_SEED] = seed
    return seed


@pytest.fixture
def rng(seed: int) -> random.Random:
    return random.Random(seed)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and (seed := item.stash.get(_SEED, None)) is not None:
        again = f"QUORACY_SEED={seed} .venv/bin/python -m pytest '{item.nodeid}'"
        # The schedule repeats; when exactly a signal lands between two instructions does not.
        report.sections.append(("replay", f"seed {seed}; the same schedule again: {again}"))
    return report


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """A small file system of the test's own."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    place = tmp_path / "disk"
    place.mkdir()
    disk = Disk(place)
    try:
        disk.mount(size_kib=8192)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"a tmpfs cannot be mounted here: {error.stderr.strip()}")
    try:
        yield disk
    finally:
        disk.unmount()


@pytest.fixture(scope="session")
def strace() -> str:
    """The strace program, proven to work: it makes chosen system calls fail, wait or kill."""
    program = shutil.which("strace")
    if program is None:
        pytest.skip("strace is not installed (Debian: apt-get install strace)")
    # A call made to fail by injection proves all of it: tracing is allowed, and so is tampering.
    probe = [program, "-f", "-qq", "-o", os.devnull, "-e", "inject=chdir:error=EIO", "sh", "-c", "cd /"]
    if subprocess.run(probe, capture_output=True, check=False).returncode == 0:
        pytest.skip("strace cannot inject faults here (is ptrace forbidden?)")
    return program
