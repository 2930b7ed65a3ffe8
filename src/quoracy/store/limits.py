"""How large keys, requests, stores and buffers may get."""

from __future__ import annotations

import msgspec

__all__ = ["Limits"]


class Limits(msgspec.Struct, frozen=True, gc=False):
    """How large things may get; the defaults are etcd's where etcd has one.

    request_bytes_max: keys and values of one request, added up.
    key_bytes_max: one key.
    txn_ops_max: compares, `then` or `otherwise` of a transaction, whichever is longest; what nested
        transactions have comes on top of the level above them.
    storage_bytes_max: the quota.  Past it, writes raise `NoSpace` until there is room again.
    pending_bytes_max: what may wait for the disk.  Past it, puts raise `Overloaded`.
    lease_ttl_min_s, lease_ttl_max_s: shorter is raised to the minimum, longer is refused.
    watch_buffer_events_max, watch_buffer_bytes_max: what is kept in memory for a watcher that does not
        read; past either it is fed from history.
    """

    request_bytes_max: int = 1_572_864
    key_bytes_max: int = 65_536
    txn_ops_max: int = 128
    storage_bytes_max: int = 2 * 1024**3
    pending_bytes_max: int = 64 * 1024**2
    lease_ttl_min_s: float = 2.0
    lease_ttl_max_s: float = 9_000_000_000.0
    watch_buffer_events_max: int = 1_000
    watch_buffer_bytes_max: int = 1024**2
