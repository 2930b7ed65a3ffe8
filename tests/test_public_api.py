"""The names that `import quoracy` promises; a change here is a change for users."""

from __future__ import annotations

import subprocess
import sys

import quoracy
from quoracy import errors
from quoracy.store import model

PUBLIC = """
    Access Barrier Cache CacheBatch CacheChange CacheEntry Change Config ConfigChange
    CountDownLatch Counter DeadLetter DefaultedValue DoubleBarrier Entered Group GroupChange
    Member Membership MembershipEvent MembershipEventKind Once PriorityQueue Queue RateLimit
    ReadHeld ReadWriteContender ReadWriteLock Semaphore SemaphoreContender Share Singleton
    Value Versioned WorkQueue WorkStats WriteHeld
    Connection Contender Election Held Job Leader Lock SessionState Term connect
    Forked LeadershipLost LockLost SessionLost StaleToken TimedOut ValueUnreadable
    NO_LEASE Alarm BackupReport Cluster ClusterHealth Compacted Completion Compare
    CompareTarget DataError
    DataInUse DataUnreadable Delete DeleteResult DuplicateKey Event EventKind FormatUnknown
    FutureRevision Indeterminate InvalidRequest KeyNotFound KeyRange KeyValue Keys
    LeaseExists LeaseGrant LeaseId LeaseLost LeaseNotFound LeaseStatus Limits MemberHealth
    NoSpace Op OpResult Overloaded ProtocolError Put PutResult QuoracyError Range RangeResult
    Rejected Relation RestoreReport Retention Revision SortTarget StateHash StorageFailed Store
    StoreClosed StoreStatus TooLarge Txn TxnResult Unavailable Unsupported WaitFirst
    WatchBatch Watch __version__ open_embedded open_store restore
"""


def test_public_names_are_these() -> None:
    assert sorted(quoracy.__all__) == sorted(PUBLIC.split())


def test_every_public_name_exists() -> None:
    assert [name for name in quoracy.__all__ if not hasattr(quoracy, name)] == []


def test_every_error_and_every_value_of_the_model_is_public() -> None:
    assert set(errors.__all__) | set(model.__all__) <= set(quoracy.__all__)


def test_every_error_is_a_quoracy_error() -> None:
    assert all(issubclass(getattr(errors, name), errors.QuoracyError) for name in errors.__all__)


def test_modules_beside_the_names_are_there_without_an_import_of_their_own() -> None:
    script = "import quoracy; quoracy.sync.connect, quoracy.fencing.MemoryGate, quoracy.redlock.Redlock"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
