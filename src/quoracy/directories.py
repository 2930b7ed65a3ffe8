"""Directories on disk: making a new file's name durable."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["sync_directory"]


def sync_directory(directory: Path) -> None:
    """Sync a directory, so that the names of new files in it survive a crash.  [etcd#22340]"""
    if os.name == "nt":
        return  # directories cannot be opened there; NTFS journals names itself
    fd = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
