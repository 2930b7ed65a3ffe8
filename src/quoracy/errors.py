"""The exceptions of Quoracy, in one tree.  Its first level says whether the request was applied.

    QuoracyError
      Rejected            the store said no; nothing was applied
        InvalidRequest    the request breaks a rule; sending it again cannot help
          KeyNotFound       a put that keeps the value or lease of a key that does not exist
          DuplicateKey      one transaction writes the same key twice
          TooLarge          a request, a key or a transaction is over its limit
        Compacted         the revision asked for is no longer kept
        FutureRevision    the revision asked for does not exist yet
        LeaseNotFound     there is no such lease: never granted, expired or revoked
        LeaseExists       a grant named an id that is taken
        NoSpace           the storage quota is used up; deletes and compaction still work
        StaleToken        a fencing token is smaller than one seen earlier
      Unavailable         not applied, try again: shutting down, overloaded, no leader
        StoreClosed         the store was closed
        Overloaded          too much is waiting for the disk already
        StorageFailed       the disk failed under the store; writes stopped for good
      Indeterminate       sent, then the answer was lost: it MAY have been applied
      LeaseLost           what this lease held (a lock, leadership) is no longer yours
        SessionLost         the session of a connection ended, and everything it held with it
        LockLost            a lock, or a share of one, is no longer held
        LeadershipLost      another candidate may be the leader
      TimedOut            the wait exceeded `timeout=`; nothing is held, nothing is left behind
      ValueUnreadable     the stored value does not have the requested type
      Forked              a child process used a connection inherited from its parent
      Unsupported         this engine or face does not do that, by design
      ProtocolError       received bytes break a wire protocol
      DataError           a data file cannot be used as it is
        DataInUse           another process has it open
        DataUnreadable      missing permission, not a store, corrupt
        FormatUnknown       written by a Quoracy with another file format

A message says what happened, with the values, and what to do next.  The attributes hold the same
values.
"""

from __future__ import annotations

__all__ = [
    "Compacted",
    "DataError",
    "DataInUse",
    "DataUnreadable",
    "DuplicateKey",
    "Forked",
    "FormatUnknown",
    "FutureRevision",
    "Indeterminate",
    "InvalidRequest",
    "KeyNotFound",
    "LeadershipLost",
    "LeaseExists",
    "LeaseLost",
    "LeaseNotFound",
    "LockLost",
    "NoSpace",
    "Overloaded",
    "ProtocolError",
    "QuoracyError",
    "Rejected",
    "SessionLost",
    "StaleToken",
    "StorageFailed",
    "StoreClosed",
    "TimedOut",
    "TooLarge",
    "Unavailable",
    "Unsupported",
    "ValueUnreadable",
]


class QuoracyError(Exception):
    """The base class of all exceptions that Quoracy raises."""


class Rejected(QuoracyError):
    """The store said no; nothing was applied."""


class InvalidRequest(Rejected):
    """The request breaks a rule of the store; sending it again unchanged cannot help."""


class KeyNotFound(InvalidRequest):
    """A put with ignore_value or ignore_lease, for a key that does not exist."""

    def __init__(self, key: bytes) -> None:
        super().__init__(
            f"key {key!r} does not exist, so its value or lease cannot be kept. "
            "Put it without ignore_value and ignore_lease first."
        )
        self.key = key


class DuplicateKey(InvalidRequest):
    """One transaction would write the same key twice."""

    def __init__(self, key: bytes) -> None:
        super().__init__(
            f"key {key!r} is written twice in one transaction. "
            "Keep one put for it, and no delete that covers it."
        )
        self.key = key


class TooLarge(InvalidRequest):
    """A request, a key or a transaction is over its limit."""

    def __init__(self, what: str, *, size: int, size_max: int, setting: str) -> None:
        super().__init__(
            f"{what} is {size:,}; the limit is {size_max:,}. Send less, or raise {setting}."
        )
        self.what, self.size, self.size_max, self.setting = what, size, size_max, setting


class Compacted(Rejected):
    """The requested revision is older than the history that is kept."""

    def __init__(self, *, wanted: int, oldest: int) -> None:
        super().__init__(
            f"revision {wanted} was compacted; the oldest kept is {oldest}. "
            "Read again without a revision, then watch from the revision that read returns."
        )
        self.wanted, self.oldest = wanted, oldest


class FutureRevision(Rejected):
    """The requested revision does not exist yet."""

    def __init__(self, *, wanted: int, newest: int) -> None:
        super().__init__(
            f"revision {wanted} does not exist yet; the newest is {newest}. "
            "If it came from another store or from before a restore, read again without it."
        )
        self.wanted, self.newest = wanted, newest


class LeaseNotFound(Rejected):
    """There is no such lease: it was never granted, it expired or it was revoked."""

    def __init__(self, lease: int) -> None:
        super().__init__(
            f"lease {lease:x} does not exist: it was never granted, expired or was revoked. "
            "Whatever it held is gone; grant a new one."
        )
        self.lease = lease


class LeaseExists(Rejected):
    """A grant named an id that is taken."""

    def __init__(self, lease: int) -> None:
        super().__init__(f"lease {lease:x} exists already. Choose another id, or let the store choose.")
        self.lease = lease


class NoSpace(Rejected):
    """The storage quota is used up."""

    def __init__(self, *, size: int, size_max: int) -> None:
        super().__init__(
            f"the store holds {size:,} bytes and its quota is {size_max:,}, so it takes no new data. "
            "Delete keys or compact history (both still work), or raise storage_bytes_max; "
            "writes resume by themselves once there is room."
        )
        self.size, self.size_max = size, size_max


class StaleToken(Rejected):
    """A fencing token smaller than one that the resource has seen: its holder lost the lock."""

    def __init__(self, resource: str, *, token: int, highest: int) -> None:
        super().__init__(
            f"the fencing token {token} for {resource!r} is stale: {highest} was seen already, so "
            "somebody else holds the lock by now. Stop, and acquire it again before you go on."
        )
        self.resource, self.token, self.highest = resource, token, highest


class Unavailable(QuoracyError):
    """Not applied; try again later or elsewhere."""


class StoreClosed(Unavailable):
    """The store, or the connection to it, was closed."""

    def __init__(self) -> None:
        super().__init__("this store or connection is closed. Open another one.")


class Overloaded(Unavailable):
    """Too many writes wait for the disk: this one is refused at once instead of delayed further."""

    def __init__(self, *, pending: int, pending_max: int) -> None:
        super().__init__(
            f"{pending:,} bytes of writes wait for the disk; the limit is {pending_max:,}. "
            "Try again in a moment, with fewer writes at a time, or raise pending_bytes_max."
        )
        self.pending, self.pending_max = pending, pending_max


class StorageFailed(Unavailable):
    """The disk failed: the store accepts no more writes; reads continue."""

    def __init__(self, path: str, cause: BaseException) -> None:
        super().__init__(
            f"writing to {path} failed ({cause}), so the store stopped taking writes; what it had "
            "acknowledged is on disk and can be read. Make room or repair the disk, then restart; "
            f"`quoracy doctor {path}` checks the data."
        )
        self.path, self.cause = path, cause


class Indeterminate(QuoracyError):
    """Sent, then the answer was lost: it MAY have been applied. Read before you write again."""


class LeaseLost(QuoracyError):
    """What this lease held (a lock, leadership) is no longer yours."""


class SessionLost(LeaseLost):
    """The session of a connection ended, and everything it held with it."""


class LockLost(LeaseLost):
    """A lock, or a share of one, is no longer held."""


class LeadershipLost(LeaseLost):
    """Another candidate may be the leader."""


class TimedOut(QuoracyError, TimeoutError):
    """The wait exceeded `timeout=`; nothing is held, and nothing is left behind."""

    def __init__(self, what: str, *, timeout_s: float) -> None:
        super().__init__(
            f"{what}: not within {timeout_s:g} s. Wait longer, or go on without it: nothing is held."
        )
        self.what, self.timeout_s = what, timeout_s


class ValueUnreadable(QuoracyError):
    """The stored value does not have the requested type."""

    def __init__(self, key: bytes, *, wanted: str, why: str) -> None:
        super().__init__(
            f"the value of {key!r} is no {wanted}: {why}. Something else wrote it; correct or delete "
            "it, or ask for the type it has."
        )
        self.key, self.wanted, self.why = key, wanted, why


class Forked(QuoracyError):
    """A child process used a connection that it inherited from its parent."""

    def __init__(self, *, owner: int, here: int) -> None:
        super().__init__(
            f"this connection belongs to process {owner} and was inherited by process {here} with a "
            "fork. Its session and its sockets are the parent's: connect anew in the child, after the "
            "fork."
        )
        self.owner, self.here = owner, here


class Unsupported(QuoracyError):
    """This engine or face does not do that, by design."""


class ProtocolError(QuoracyError):
    """The received bytes break a wire protocol."""


class DataError(QuoracyError):
    """A data file cannot be used as it is."""


class DataInUse(DataError):
    """Another process (or another store in this one) has the data open."""

    def __init__(self, path: str, *, pid: int | None) -> None:
        owner = f"process {pid}" if pid is not None else "another process"
        super().__init__(
            f"{path} is in use by {owner}. One process owns a store at a time: "
            "stop that one first, or give this one another path."
        )
        self.path, self.pid = path, pid


class DataUnreadable(DataError):
    """The data file cannot be read: a permission is missing, it is not a store, or it is corrupt."""


class FormatUnknown(DataError):
    """The data file has a format that this version of Quoracy does not know."""

    def __init__(self, path: str, *, found: object, known: int) -> None:
        super().__init__(
            f"{path} has format {found}; this Quoracy reads format {known}. "
            "Open it with the version of Quoracy that wrote it."
        )
        self.path, self.found, self.known = path, found, known
