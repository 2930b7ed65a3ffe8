"""Quoracy's own History service, beside etcd's: which revision it was so long ago."""

from __future__ import annotations

from quoracy.faces.etcd.methods import Method, Unary
from quoracy.faces.etcd.services.header import Headers
from quoracy.store.legacy import KnowsTimes
from quoracy.wire.quoracy import RevisionAtRequest, RevisionAtResponse

__all__ = ["HistoryService"]


class HistoryService:
    def __init__(self, store: KnowsTimes, headers: Headers) -> None:
        self._store = store
        self._headers = headers

    def methods(self) -> list[Method]:
        # No route of the JSON gateway's: what is under /v3/ is etcd's to name.
        path = "/quoracy.v1.History/RevisionAt"
        return [Unary(path, RevisionAtRequest, RevisionAtResponse, self.revision_at)]

    async def revision_at(self, request: RevisionAtRequest) -> RevisionAtResponse:
        revision = await self._store.revision_at(request.age_ms / 1000)
        return RevisionAtResponse(header=await self._headers.now(), revision=revision)
