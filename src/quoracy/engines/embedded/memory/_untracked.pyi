# What _untracked.c offers; nothing, where it was not compiled.

from quoracy.store.model import KeyValue

def untracked(versions: tuple[KeyValue, ...], /) -> tuple[KeyValue, ...]: ...
