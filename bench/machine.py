"""What every result carries: which code, on which machine, with which settings."""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from bench.rounds import Settings
from quoracy.compiled import is_compiled

__all__ = ["MEMORY_FILE_SYSTEMS", "describe", "file_system"]

MEMORY_FILE_SYSTEMS = frozenset({"tmpfs", "ramfs"})


def describe(settings: Settings) -> dict[str, str]:
    return {
        "commit": _commit(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "system": f"{platform.system()} {platform.release()}",
        "data on": file_system(settings.directory),
        "load": f"{settings.load:.2f} at the start",
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "hot modules": "compiled by mypyc" if is_compiled() else "as source, not compiled",
        "SQLite": sqlite3.sqlite_version,
        "libraries": ", ".join(f"{name} {_version(name)}" for name in ("msgspec", "uvloop")),
        "settings": f"{settings.rounds} rounds of {settings.slice_s:g} s turns"
        + (", quick" if settings.quick else ""),
    }


def file_system(path: Path) -> str:
    """The kind of file system that holds a path."""
    path = path.resolve()
    kinds = {Path(part.mountpoint): part.fstype for part in psutil.disk_partitions(all=True)}
    return next((kinds[parent] for parent in (path, *path.parents) if parent in kinds), "unknown")


def _commit() -> str:
    root = Path(__file__).parent.parent

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=root, capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        changed = " with changes" if git("status", "--porcelain", "src", "bench") else ""
        return git("rev-parse", "--short=12", "HEAD") + changed
    except (OSError, subprocess.CalledProcessError):
        return "not committed"


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return " ".join(line.partition(":")[2].split())
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"
