"""The waist: the values, the rules and the contract that every engine keeps and every face uses."""

from quorate.store.api import (
    PutOptions as PutOptions,
)
from quorate.store.api import (
    RangeOptions as RangeOptions,
)
from quorate.store.api import (
    Store as Store,
)
from quorate.store.api import (
    WatchOptions as WatchOptions,
)
from quorate.store.api import (
    WatchStream as WatchStream,
)
