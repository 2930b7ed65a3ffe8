"""Requests to a tree of few znodes, so that they meet."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st

from quoracy.wire.zookeeper.codes import Op
from quoracy.wire.zookeeper.requests import Acl, Check, Create, Delete, Multi, SetAcl, SetData

__all__ = ["PATHS", "examples", "requests"]


def examples(count: int) -> settings:
    """So many by default; at length, as many as everything else."""
    usual = settings.get_profile("default").max_examples
    return settings(max_examples=count if settings().max_examples <= usual else settings().max_examples)


PATHS = [
    b"/a",
    b"/b",
    b"/a/a",
    b"/a/b",
    b"/a/a/a",
    b"/b/c",
]
# What is nowhere, what may not be, and what nobody may touch.
_ODD_PATHS = [b"", b"a", b"/", b"/a/", b"//a", b"/a/./b", b"/a/\0", b"/a/\x1f", b"/zookeeper", b"/c/d"]

_OPEN = (Acl(31, "world", "anyone"),)
_ACLS = [
    _OPEN,
    _OPEN,
    _OPEN,
    (),
    (Acl(1, "world", "anyone"),),
    (Acl(31 - 4, "world", "anyone"),),
    (Acl(31 - 8 - 2, "world", "anyone"), Acl(31, "digest", "one:x")),
    (Acl(31, "auth", ""),),
    (Acl(31, "nobody", "knows"),),
]

_paths = st.sampled_from(PATHS * 4 + _ODD_PATHS)
_versions = st.sampled_from([-1, -1, -1, 0, 1, 2])
_datas = st.sampled_from([b"", b"x", b"some data", None, b"y" * 5000])
_acls = st.sampled_from(_ACLS)


@st.composite
def _creates(draw: st.DrawFn) -> Create:
    op = draw(
        st.sampled_from([Op.CREATE] * 3 + [Op.CREATE2] * 3 + [Op.CREATE_CONTAINER, Op.CREATE_TTL])
    )
    flags = draw(st.sampled_from([0, 0, 0, 0, 1, 1, 2, 3, 7]))
    ttl_ms = -1
    if op == Op.CREATE_CONTAINER:
        flags = 4
    elif op == Op.CREATE_TTL:
        flags = draw(st.sampled_from([5, 6]))
        ttl_ms = draw(st.sampled_from([1, 1000, 2**40 - 1, 0, -5, 2**40]))
    return Create(op, draw(_paths), draw(_datas), draw(_acls), flags, ttl_ms)


_deletes = st.builds(Delete, _paths, _versions)
_sets = st.builds(SetData, _paths, _datas, _versions)
_set_acls = st.builds(SetAcl, _paths, _acls, _versions)
_checks = st.builds(Check, _paths, _versions)

_singles = st.one_of(_creates(), _creates(), _creates(), _deletes, _deletes, _sets, _set_acls, _checks)
# (setACL is not possible in a multi.)
_parts = st.one_of(_creates(), _creates(), _deletes, _deletes, _sets, _checks)
_multis = st.lists(_parts, max_size=6).map(lambda ops: Multi(tuple(ops)))

# A multi that succeeds needs paths that are right: those come often enough only if asked for.
_good_paths = st.sampled_from(PATHS)
_good_parts = st.one_of(
    st.builds(
        Create,
        st.sampled_from([Op.CREATE, Op.CREATE2]),
        _good_paths,
        _datas,
        st.just(_OPEN),
        st.sampled_from([0, 0, 0, 1, 2]),
    ),
    st.builds(Delete, _good_paths, st.just(-1)),
    st.builds(SetData, _good_paths, _datas, st.just(-1)),
)
_good_multis = st.lists(_good_parts, min_size=2, max_size=4).map(lambda ops: Multi(tuple(ops)))


def _rebuild(child: bytes, touched: bool, again: bool) -> Multi:
    """A znode and its only child are deleted and made again."""
    parent = child[: child.rindex(b"/")]
    ops: list[Create | Delete | SetData] = [SetData(parent, b"before", -1)] if touched else []
    ops += [Delete(child, -1), Delete(parent, -1), Create(Op.CREATE2, parent, b"new", _OPEN, 0)]
    if again:
        ops += [Create(Op.CREATE2, child, b"new", _OPEN, 0), SetData(parent, b"after", 0)]
    return Multi(tuple(ops))


_rebuilds = st.builds(_rebuild, st.sampled_from([b"/b/c", b"/a/a/a"]), st.booleans(), st.booleans())

requests = st.one_of(_singles, _singles, _singles, _multis, _good_multis, _good_multis, _rebuilds)
