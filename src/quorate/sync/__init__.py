"""Quorate for threads and scripts: the same names as `quorate`, without `async` and `await`.

    with quorate.sync.connect("quorate://localhost") as q:
        with q.lock("reports/nightly") as held:
            write_report(fence=held.token)

Generated: see `quorate.sync.generate`.
"""

from quorate.sync.blocks import Block, Event, Stream
from quorate.sync.face.barrier import Barrier
from quorate.sync.face.cache import Cache
from quorate.sync.face.config import Config
from quorate.sync.face.connection import Connection, connect
from quorate.sync.face.counter import Counter
from quorate.sync.face.double_barrier import DoubleBarrier, Entered
from quorate.sync.face.election import Election, Term
from quorate.sync.face.group import Group, Membership
from quorate.sync.face.holding import Held
from quorate.sync.face.jobs import Job
from quorate.sync.face.latch import CountDownLatch
from quorate.sync.face.lock import Lock
from quorate.sync.face.once import Once
from quorate.sync.face.priority_queue import PriorityQueue
from quorate.sync.face.queue import Queue
from quorate.sync.face.rate_limit import RateLimit
from quorate.sync.face.rwlock import ReadHeld, ReadWriteLock, WriteHeld
from quorate.sync.face.semaphore import Semaphore, Share
from quorate.sync.face.singleton import Singleton
from quorate.sync.face.store import Store, WatchStream
from quorate.sync.face.value import DefaultedValue, Value
from quorate.sync.face.work_queue import WorkQueue

__all__ = [
    "Barrier",
    "Block",
    "Cache",
    "Config",
    "Connection",
    "CountDownLatch",
    "Counter",
    "DefaultedValue",
    "DoubleBarrier",
    "Election",
    "Entered",
    "Event",
    "Group",
    "Held",
    "Job",
    "Lock",
    "Membership",
    "Once",
    "PriorityQueue",
    "Queue",
    "RateLimit",
    "ReadHeld",
    "ReadWriteLock",
    "Semaphore",
    "Share",
    "Singleton",
    "Store",
    "Stream",
    "Term",
    "Value",
    "WatchStream",
    "WorkQueue",
    "WriteHeld",
    "connect",
]
