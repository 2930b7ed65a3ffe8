"""Quoracy for threads and scripts: the names of `quoracy` without `async` and `await`.

    with quoracy.sync.connect("quoracy://localhost") as q:
        with q.lock("reports/nightly") as held:
            write_report(fence=held.token)

Generated: do not change it by hand, run `python -m quoracy.threads.generator`.
"""

from quoracy.sync.connection import Connection, connect
from quoracy.sync.recipes import (
    Barrier,
    Cache,
    Config,
    CountDownLatch,
    Counter,
    DefaultedValue,
    DoubleBarrier,
    Election,
    Entered,
    Group,
    Held,
    Job,
    Lock,
    Membership,
    Once,
    PriorityQueue,
    Queue,
    RateLimit,
    ReadHeld,
    ReadWriteLock,
    Semaphore,
    Share,
    Singleton,
    Term,
    Value,
    WorkQueue,
    WriteHeld,
)
from quoracy.sync.store import Store, Watch
from quoracy.threads.proxies import Block, Event, Stream

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
