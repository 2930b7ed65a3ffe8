"""Redlock: locks for those who have only Redis.  No fencing tokens: see docs/guides/redlock.md."""

from quoracy.blocks import Holding as Holding
from quoracy.redlock.holding import Held as Held
from quoracy.redlock.locking import Lock as Lock
from quoracy.redlock.locking import Redlock as Redlock

__all__ = ["Held", "Holding", "Lock", "Redlock"]
