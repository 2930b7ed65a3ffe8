"""Redlock: locks for those who have only Redis.  No fencing tokens: see docs/guides/redlock.md."""

from quorate.blocks import Holding as Holding
from quorate.redlock.holding import Held as Held
from quorate.redlock.locking import Lock as Lock
from quorate.redlock.locking import Redlock as Redlock

__all__ = ["Held", "Holding", "Lock", "Redlock"]
