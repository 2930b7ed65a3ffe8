"""Quoracy: small, vital metadata, strongly consistent, watched and leased.

async with quoracy.open_store("sqlite:data/quoracy.db") as store: ...

What is offered is imported when it is first used: `quoracy --version`, or a command that talks to a
server, should not wait for an engine to load.
"""

# ruff: noqa: F405 (the names come from public.py)

import os as _os

if _os.environ.get("QUORACY_PURE"):
    from quoracy.compiled import use_source as _use_source

    _use_source()

# Type checkers take this for true; to import it from `typing` takes about as long as starting Python.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from quoracy import fencing as fencing
    from quoracy import membership as membership
    from quoracy import redlock as redlock
    from quoracy import sync as sync
    from quoracy import testing as testing
    from quoracy.public import *  # noqa: F403

_MODULES = ("fencing", "membership", "redlock", "sync", "testing")

__version__ = "0.1.0"

__all__ = [
    "NO_LEASE",
    "Access",
    "Alarm",
    "BackupReport",
    "Barrier",
    "Cache",
    "CacheBatch",
    "CacheChange",
    "CacheEntry",
    "Change",
    "Cluster",
    "ClusterHealth",
    "Compacted",
    "Compare",
    "CompareTarget",
    "Completion",
    "Config",
    "ConfigChange",
    "Connection",
    "Contender",
    "CountDownLatch",
    "Counter",
    "DataError",
    "DataInUse",
    "DataUnreadable",
    "DeadLetter",
    "DefaultedValue",
    "Delete",
    "DeleteResult",
    "DoubleBarrier",
    "DuplicateKey",
    "Election",
    "Entered",
    "Event",
    "EventKind",
    "Forked",
    "FormatUnknown",
    "FutureRevision",
    "Group",
    "GroupChange",
    "Held",
    "Indeterminate",
    "InvalidRequest",
    "Job",
    "KeyNotFound",
    "KeyRange",
    "KeyValue",
    "Keys",
    "Leader",
    "LeadershipLost",
    "LeaseExists",
    "LeaseGrant",
    "LeaseId",
    "LeaseLost",
    "LeaseNotFound",
    "LeaseStatus",
    "Limits",
    "Lock",
    "LockLost",
    "Member",
    "MemberHealth",
    "Membership",
    "MembershipEvent",
    "MembershipEventKind",
    "NoSpace",
    "Once",
    "Op",
    "OpResult",
    "Overloaded",
    "PriorityQueue",
    "ProtocolError",
    "Put",
    "PutResult",
    "Queue",
    "QuoracyError",
    "Range",
    "RangeResult",
    "RateLimit",
    "ReadHeld",
    "ReadWriteContender",
    "ReadWriteLock",
    "Rejected",
    "Relation",
    "RestoreReport",
    "Retention",
    "Revision",
    "Semaphore",
    "SemaphoreContender",
    "SessionLost",
    "SessionState",
    "Share",
    "Singleton",
    "SortTarget",
    "StaleToken",
    "StateHash",
    "StorageFailed",
    "Store",
    "StoreClosed",
    "StoreStatus",
    "Term",
    "TimedOut",
    "TooLarge",
    "Txn",
    "TxnResult",
    "Unavailable",
    "Unsupported",
    "Value",
    "ValueUnreadable",
    "Versioned",
    "WaitFirst",
    "Watch",
    "WatchBatch",
    "WorkQueue",
    "WorkStats",
    "WriteHeld",
    "__version__",
    "connect",
    "open_embedded",
    "open_store",
    "restore",
]


def __getattr__(name: str) -> object:
    if name in _MODULES:
        import importlib

        return importlib.import_module(f"{__name__}.{name}")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from quoracy import public

    value: object = getattr(public, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, *_MODULES]
