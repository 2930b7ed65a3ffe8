"""What `/health` answers: one status, judged.

The words are etcd's ("health" is the string "true" or "false", "reason" says why), so that probes
written for etcd work; the store's status comes beside them.
"""

from __future__ import annotations

from typing import assert_never

import msgspec

from quorate.store.model import Alarm, StoreStatus

__all__ = ["Health", "judge"]


class Health(msgspec.Struct, frozen=True):
    """A verdict; `status` is missing when the store could not even say how it is."""

    ok: bool
    reason: str
    status: StoreStatus | None

    def to_json(self) -> bytes:
        status = {} if self.status is None else msgspec.structs.asdict(self.status)
        return msgspec.json.encode(
            {"health": "true" if self.ok else "false", "reason": self.reason, **status}
        )


def judge(status: StoreStatus) -> Health:
    reasons = sorted(_reason(alarm) for alarm in status.alarms)
    return Health(ok=not reasons, reason="; ".join(reasons), status=status)


def _reason(alarm: Alarm) -> str:
    match alarm:
        case Alarm.NO_SPACE:
            return "the storage quota is used up: delete keys, compact history or raise --quota"
        case Alarm.STORAGE_FAILED:
            return "writing to disk failed: reads go on, writes need a repaired disk and a restart"
        case _:
            assert_never(alarm)
