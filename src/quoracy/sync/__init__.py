"""Quoracy for threads and scripts: the same names as `quoracy`, without `async` and `await`.

    with quoracy.sync.connect("quoracy://localhost") as q:
        with q.lock("reports/nightly") as held:
            write_report(fence=held.token)

Generated: see `quoracy.sync.generate`.
"""

from quoracy.sync.blocks import Block, Event, Stream
from quoracy.sync.face.barrier import Barrier
from quoracy.sync.face.cache import Cache
from quoracy.sync.face.config import Config
from quoracy.sync.face.connection import Connection, connect
from quoracy.sync.face.counter import Counter
from quoracy.sync.face.double_barrier import DoubleBarrier, Entered
from quoracy.sync.face.election import Election, Term
from quoracy.sync.face.group import Group, Membership
from quoracy.sync.face.held import Held
from quoracy.sync.face.job import Job
from quoracy.sync.face.latch import CountDownLatch
from quoracy.sync.face.lock import Lock
from quoracy.sync.face.once import Once
from quoracy.sync.face.priority_queue import PriorityQueue
from quoracy.sync.face.queue import Queue
from quoracy.sync.face.rate_limit import RateLimit
from quoracy.sync.face.rwlock import ReadHeld, ReadWriteLock, WriteHeld
from quoracy.sync.face.semaphore import Semaphore, Share
from quoracy.sync.face.singleton import Singleton
from quoracy.sync.face.store import Store, Watch
from quoracy.sync.face.value import DefaultedValue, Value
from quoracy.sync.face.work_queue import WorkQueue

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
    "Watch",
    "WorkQueue",
    "WriteHeld",
    "connect",
]
