"""The response of `/health`: a verdict on the store's status.

The fields are etcd's ("health" is the string "true" or "false", "reason" says why), so that probes
written for etcd work.  The store's status is added, and the health of its cluster if there is one.
"""

from __future__ import annotations

from typing import assert_never

import msgspec

from quoracy.store.model import Alarm, ClusterHealth, StoreStatus

__all__ = ["Health", "judge"]


class Health(msgspec.Struct, frozen=True):
    """A verdict; `status` is None if the store could not report it."""

    ok: bool
    reason: str
    status: StoreStatus | None
    cluster: ClusterHealth | None = None

    def to_json(self) -> bytes:
        status = {} if self.status is None else msgspec.structs.asdict(self.status)
        if self.cluster is not None:
            status["cluster"] = self.cluster
        return msgspec.json.encode(
            {"health": "true" if self.ok else "false", "reason": self.reason, **status}
        )


def judge(status: StoreStatus | None, cluster: ClusterHealth | None = None) -> Health:
    """The verdict; `status` may be None on a cluster, where a node can still serve reads without it."""
    reasons = [] if status is None else sorted(_reason(alarm) for alarm in status.alarms)
    if cluster is not None and not cluster.is_serving:
        reasons.insert(0, f"neither writes nor linearizable reads are taken: {cluster.reason}")
    return Health(ok=not reasons, reason="; ".join(reasons), status=status, cluster=cluster)


def _reason(alarm: Alarm) -> str:
    match alarm:
        case Alarm.NO_SPACE:
            return "the storage quota is used up: delete keys, compact history or raise --quota"
        case Alarm.STORAGE_FAILED:
            return "writing to disk failed: reads go on, writes need a repaired disk and a restart"
        case _:
            assert_never(alarm)
