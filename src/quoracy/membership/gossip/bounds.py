"""What one owner may have, and what happens beyond.

Our own writes beyond a bound raise, and say what to do.  A delta that leads beyond is refused as a
whole: with a part of it the replica would be something that its owner never had.
"""

from __future__ import annotations

from quoracy.errors import InvalidRequest, TooLarge
from quoracy.membership.gossip.messages import Delta
from quoracy.membership.gossip.replica import Replica
from quoracy.membership.gossip.settings import GossipSettings

__all__ = ["allows", "check_write"]


def allows(settings: GossipSettings, replica: Replica, delta: Delta) -> bool:
    """Whether a replica may become what a delta makes of it."""
    for entry in delta.entries:
        if len(entry.key.encode()) > settings.key_bytes_max:
            return False
        if len(entry.value or b"") > settings.value_bytes_max:
            return False
    count, size = replica.size_after(delta)
    return count <= settings.entries_max and size <= settings.owner_bytes_max


def check_write(settings: GossipSettings, mine: Replica, key: str, value: bytes) -> None:
    """Raises `InvalidRequest` if we may not write that.

    >>> check_write(GossipSettings(value_bytes_max=3), Replica("a", generation=1), "colour", b"blue")
    Traceback (most recent call last):
    ...
    quoracy.errors.TooLarge: the value of 'colour' is 4; the limit is 3. Send less, or raise ...
    """
    if not key:
        raise InvalidRequest("a key must not be empty: give it a name")
    key_bytes = len(key.encode())
    old = mine.value(key)
    count = mine.live_count + (old is None)
    size = mine.live_bytes + len(value) + (key_bytes if old is None else -len(old))
    for what, found, found_max, setting in (
        (f"the key {key[:40]!r}", key_bytes, settings.key_bytes_max, "key_bytes_max"),
        (f"the value of {key[:40]!r}", len(value), settings.value_bytes_max, "value_bytes_max"),
        ("the number of keys", count, settings.entries_max, "entries_max"),
        ("the size of all keys and values", size, settings.owner_bytes_max, "owner_bytes_max"),
    ):
        if found > found_max:
            raise TooLarge(
                what,
                size=found,
                size_max=found_max,
                setting=f"{setting} of every participant, or delete keys first",
            )
