"""The version of etcd whose protocol this face speaks: clients decide by it what they may ask for."""

from __future__ import annotations

__all__ = ["CLUSTER_VERSION", "ETCD_VERSION"]

ETCD_VERSION = "3.5.21"
# What every member of a cluster understands: its oldest minor version, always with patch level 0.
CLUSTER_VERSION = "3.5.0"
