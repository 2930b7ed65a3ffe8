# What _untracked.c offers; nothing, where it was not compiled.

from quorate.store.model import KeyValue

def untracked(versions: tuple[KeyValue, ...], /) -> tuple[KeyValue, ...]: ...
