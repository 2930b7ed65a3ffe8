"""Why something that arrived was not believed, or not taken at all."""

from __future__ import annotations

import enum

__all__ = ["DropReason"]


class DropReason(enum.Enum):
    """One word for each way to be refused; `statistics().dropped` counts by it."""

    MALFORMED = "malformed"  # not of this protocol, or damaged
    TOO_BIG = "too big"  # over a limit, or would be once inflated
    WRONG_VERSION = "wrong version"  # of this protocol, but of a version that is not spoken here
    WRONG_LABEL = "wrong label"  # of another cluster
    WRONG_KEY = "wrong key"  # forged, damaged, or sealed with a key that is not on the ring
    UNENCRYPTED = "unencrypted"  # in the clear, though there is a key ring
    TOO_OLD = "too old"  # sent too long ago, or too far in the future, by the wall clocks
    REPLAYED = "replayed"  # seen already
    UNKNOWN_CHANNEL = "unknown channel"  # no machine is attached there
    REFUSED = "refused"  # the machine says that it makes no sense
    RATE = "rate"  # too many connections, or too much that is half received
    SLOW = "slow"  # a connection that did not say hello, or complete its frame, in time
