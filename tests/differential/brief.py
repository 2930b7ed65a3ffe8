"""Values as short Python that can be pasted: fields with their defaults are left out.  Pure."""

from __future__ import annotations

from enum import Enum

import msgspec

__all__ = ["brief"]


def brief(value: object) -> str:
    """
    >>> from quoracy.store.model import Range, SortTarget
    >>> brief(Range(b"jobs", sort_by=SortTarget.MOD))
    "Range(keys=b'jobs', sort_by=SortTarget.MOD)"
    """
    match value:
        case msgspec.Struct():
            fields = (
                f"{field.name}={brief(getattr(value, field.name))}"
                for field in msgspec.structs.fields(value)
                if getattr(value, field.name) != field.default
            )
            return f"{type(value).__name__}({', '.join(fields)})"
        case tuple():
            items = ", ".join(map(brief, value))
            return f"({items},)" if len(value) == 1 else f"({items})"
        case Enum():
            return str(value)
        case type():
            return value.__name__
        case _:
            return repr(value)
