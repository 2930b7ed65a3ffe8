"""Redlock: locks on Redis servers alone.  No fencing tokens: see docs/guides/redlock.md."""

from quoracy.blocks import Holding as Holding
from quoracy.redlock.held import Held as Held
from quoracy.redlock.lock import Lock as Lock
from quoracy.redlock.lock import Redlock as Redlock

__all__ = ["Held", "Holding", "Lock", "Redlock"]
