"""The options of the coroutines of `Store`: keyword arguments with types."""

from __future__ import annotations

from typing import TypedDict

from quoracy.store.model import SortTarget

__all__ = ["PutOptions", "RangeOptions", "WatchOptions"]


class RangeOptions(TypedDict, total=False):
    """The options of `Store.range`; `Range` says what each does."""

    at: int | None
    limit: int | None
    sort_by: SortTarget
    descending: bool
    keys_only: bool
    count_only: bool
    mod_revision_min: int | None
    mod_revision_max: int | None
    create_revision_min: int | None
    create_revision_max: int | None
    serializable: bool


class PutOptions(TypedDict, total=False):
    """The options of `Store.put`; `Put` says what each does."""

    lease: int
    prev_kv: bool
    ignore_value: bool
    ignore_lease: bool


class WatchOptions(TypedDict, total=False):
    """The options of `Store.watch`.

    after: deliver what happened after this revision; None, the default, is the newest there is when
        the watch is entered.  It may lie in the future: nothing earlier is delivered then.
    puts, deletes: False leaves out events of that kind.
    prev_kv: give each event the key's previous version, where that is still kept.
    progress_s: after this many seconds without a batch, deliver one without events.
    """

    after: int | None
    puts: bool
    deletes: bool
    prev_kv: bool
    progress_s: float | None
