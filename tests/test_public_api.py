"""The names that `import quorate` promises; a change here is a change for users."""

from __future__ import annotations

import subprocess
import sys

import quorate
from quorate import errors
from quorate.store import model

PUBLIC = """
    Access Barrier Cache CacheBatch CacheChange CacheEntry Change Config ConfigChange
    CountDownLatch Counter DeadLetter DefaultedValue DoubleBarrier Entered Group GroupChange
    Member Membership MembershipEvent MembershipEventKind Once PriorityQueue Queue RateLimit
    ReadHeld ReadWriteContender ReadWriteLock Semaphore SemaphoreContender Share Singleton
    Value Versioned WorkQueue WorkStats WriteHeld
    Connection Contender Election Held Job Leader Lock SessionState Term connect
    Forked LeadershipLost LockLost SessionLost StaleToken TimedOut ValueUnreadable
    NO_LEASE Alarm BackupReport ClusterHealth Compacted Compare CompareTarget DataError
    DataInUse DataUnreadable Delete DeleteResult DuplicateKey Event EventKind FormatUnknown
    FutureRevision Indeterminate InvalidRequest KeyNotFound KeyRange KeyValue Keys KnowsTimes
    LeaseExists LeaseGrant LeaseId LeaseLost LeaseNotFound LeaseStatus Limits MemberHealth
    NoSpace Op OpResult Overloaded ProtocolError Put PutResult QuorateError Range RangeResult
    Rejected Relation RestoreReport Retention Revision SortTarget StateHash StorageFailed Store
    StoreClosed StoreStatus TooLarge Txn TxnResult Unavailable Unsupported WatchBatch
    WatchStream __version__ open_embedded open_store restore
"""


def test_public_names_are_these() -> None:
    assert sorted(quorate.__all__) == sorted(PUBLIC.split())


def test_every_public_name_exists() -> None:
    assert [name for name in quorate.__all__ if not hasattr(quorate, name)] == []


def test_every_error_and_every_value_of_the_model_is_public() -> None:
    assert set(errors.__all__) | set(model.__all__) <= set(quorate.__all__)


def test_every_error_is_a_quorate_error() -> None:
    assert all(issubclass(getattr(errors, name), errors.QuorateError) for name in errors.__all__)


def test_modules_beside_the_names_are_there_without_an_import_of_their_own() -> None:
    script = "import quorate; quorate.sync.connect, quorate.fencing.MemoryGate, quorate.redlock.Redlock"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
