"""A small file system that a test can fill, enlarge, make read-only and take away."""

from __future__ import annotations

import subprocess
from pathlib import Path

__all__ = ["Disk"]


class Disk:
    """A tmpfs.  Needs root."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def mount(self, *, size_kib: int) -> None:
        _run("mount", "-t", "tmpfs", "-o", f"size={size_kib}k", "tmpfs", str(self.path))

    def resize(self, *, size_kib: int) -> None:
        _run("mount", "-o", f"remount,size={size_kib}k", str(self.path))

    def make_read_only(self) -> None:
        _run("mount", "-o", "remount,ro", str(self.path))

    def unmount(self) -> None:
        _run("umount", "--lazy", str(self.path))  # somebody may still be in it


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
