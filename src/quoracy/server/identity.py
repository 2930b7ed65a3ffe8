"""The ids of a server in etcd's protocol: of its cluster, and of itself as the only member.

Clients compare them with those of an earlier answer to notice that they talk to other data.  So they
are drawn at random once, kept in `PATH.identity` beside the data `PATH`, and not part of a backup: a
restored store is another store.
"""

from __future__ import annotations

import logging
import os
import random
from pathlib import Path

import msgspec

from quoracy.directories import sync_directory

__all__ = ["ClusterIds", "establish_ids", "ids_in_cell"]

_log = logging.getLogger(__name__)

_ID_MAX = 2**64 - 1  # 0 means "none" in etcd's protocol


class ClusterIds(msgspec.Struct, frozen=True):
    cluster_id: int
    member_id: int


def establish_ids(data: Path | None, *, rng: random.Random | None = None) -> ClusterIds:
    """The ids of the store at `data`, drawn if it has none; None is a store in memory.

    A file that cannot be read or written is no reason not to serve: it is logged, and the ids change
    with the next start.
    """
    if data is None:
        return _draw(rng)
    file = Path(f"{data}.identity")
    try:
        return _parse(file.read_bytes())
    except FileNotFoundError:
        pass  # the first start
    except (OSError, ValueError) as error:
        _log.warning("%s cannot be used (%s): this server gets new cluster and member ids", file, error)
    ids = _draw(rng)
    try:
        _write(file, ids)
    except OSError as error:
        _log.warning("%s cannot be written (%s): cluster and member ids are for now only", file, error)
    return ids


def ids_in_cell(cluster_id: int, address: str) -> ClusterIds:
    """The ids of a node of a cell: the cluster's own, which all nodes share, and one by its address."""
    import hashlib  # brings OpenSSL, which a server on its own can do without

    digest = hashlib.sha256(address.encode()).digest()
    return ClusterIds(cluster_id or 1, int.from_bytes(digest[:8], "big") or 1)


def _draw(rng: random.Random | None) -> ClusterIds:
    rng = rng or random.SystemRandom()
    return ClusterIds(cluster_id=rng.randint(1, _ID_MAX), member_id=rng.randint(1, _ID_MAX))


def _parse(content: bytes) -> ClusterIds:
    # As hexadecimal text: etcdctl shows ids so, and few JSON readers have 64-bit integers.
    match msgspec.json.decode(content):
        case {"cluster_id": str(cluster), "member_id": str(member)}:
            ids = ClusterIds(int(cluster, 16), int(member, 16))
        case _:
            raise ValueError("cluster_id or member_id is missing")
    if not all(0 < number <= _ID_MAX for number in (ids.cluster_id, ids.member_id)):
        raise ValueError("an id is not a 64-bit number above 0")
    return ids


def _write(file: Path, ids: ClusterIds) -> None:
    """All of it or nothing, and on disk when this returns."""
    named = {name: f"{number:016x}" for name, number in msgspec.structs.asdict(ids).items()}
    draft = file.with_name(f"{file.name}.new")  # nobody else writes it: this process owns the data
    try:
        with draft.open("wb") as content:
            content.write(msgspec.json.encode(named) + b"\n")
            content.flush()
            os.fsync(content.fileno())
        draft.replace(file)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    sync_directory(file.parent)
