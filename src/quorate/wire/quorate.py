"""Quorate's own procedures, beside etcd's: package quorate.v1.

service History {
  rpc RevisionAt(RevisionAtRequest) returns (RevisionAtResponse);
}
"""

from __future__ import annotations

from typing import Annotated

from quorate.wire.etcd.rpc import ResponseHeader
from quorate.wire.protobuf import INT64, Field, Message

__all__ = ["RevisionAtRequest", "RevisionAtResponse"]


class RevisionAtRequest(Message, kw_only=True):
    """Which revision was the newest so many milliseconds ago?"""

    age_ms: Annotated[int, Field(1, INT64)] = 0


class RevisionAtResponse(Message, kw_only=True):
    """This one: made at that time or before."""

    header: Annotated[ResponseHeader | None, Field(1)] = None
    revision: Annotated[int, Field(2, INT64)] = 0
