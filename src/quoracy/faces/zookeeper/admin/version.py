"""The version of ZooKeeper whose protocol this face speaks: clients and monitors ask for it."""

from __future__ import annotations

import platform

__all__ = ["FULL_VERSION", "ZOOKEEPER_VERSION"]

ZOOKEEPER_VERSION = "3.8.4"
# Tools read the digits before the hyphen; after it ZooKeeper has its commit and its day of birth.
FULL_VERSION = f"{ZOOKEEPER_VERSION}-quoracy, built on Python {platform.python_version()}"
