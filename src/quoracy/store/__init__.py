"""The waist: the values, the rules and the contract that every engine keeps and every face uses."""

from quoracy.store.api import PutOptions as PutOptions
from quoracy.store.api import RangeOptions as RangeOptions
from quoracy.store.api import Store as Store
from quoracy.store.api import Watch as Watch
from quoracy.store.api import WatchOptions as WatchOptions
