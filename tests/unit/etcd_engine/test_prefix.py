"""Keys go out with the prefix and come back without it; nothing else is ever named."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quoracy.engines.etcd.opening import parse_engine_url
from quoracy.engines.etcd.prefix import DEFAULT_PREFIX, Prefix
from quoracy.errors import InvalidRequest, ProtocolError
from quoracy.store.model import Compare, Delete, KeyRange, KeyValue, Put, Range, Txn
from quoracy.store.rules import as_range

_KEYS = st.binary(min_size=1, max_size=3)
_PREFIXES = st.binary(min_size=1, max_size=3)
_RANGES = st.builds(KeyRange, st.binary(max_size=3), st.none() | st.binary(max_size=3))


@given(_PREFIXES, _RANGES, _KEYS)
def test_key_is_in_range_outside_just_when_it_is_inside(
    text: bytes, keys: KeyRange, key: bytes
) -> None:
    prefix = Prefix(text)
    outside = prefix.keys(keys)
    assert isinstance(outside, KeyRange)
    assert outside.contains(text + key) == keys.contains(key)


@given(_PREFIXES, _RANGES, st.binary(max_size=5))
def test_no_range_names_a_key_of_others(text: bytes, keys: KeyRange, other: bytes) -> None:
    if not other.startswith(text) or other == text:
        assert not as_range(Prefix(text).keys(keys)).contains(other)


@given(_PREFIXES, _KEYS)
def test_what_went_out_comes_back(text: bytes, key: bytes) -> None:
    prefix = Prefix(text)
    out = prefix.keys(key)
    assert isinstance(out, bytes)
    assert prefix.key(out) == key
    kv = KeyValue(out, b"v", 2, 3, 4, 5)
    assert prefix.kv(kv) == KeyValue(key, b"v", 2, 3, 4, 5)


def test_transaction_goes_out_whole() -> None:
    prefix = Prefix(b"/q/")
    inner = Txn((), (Range(KeyRange.prefix(b"c"), limit=3),))
    txn = Txn((Compare.version(b"a", "=", 1),), (Put(b"a", b"1", 7), inner), (Delete(b"b", True),))
    assert prefix.txn(txn) == Txn(
        (Compare.version(b"/q/a", "=", 1),),
        (Put(b"/q/a", b"1", 7), Txn((), (Range(KeyRange.prefix(b"/q/c"), limit=3),))),
        (Delete(b"/q/b", True),),
    )


def test_key_of_others_is_not_taken() -> None:
    with pytest.raises(ProtocolError, match="not under"):
        Prefix(b"/q/").key(b"/r/a")


def test_empty_prefix_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="prefix is empty"):
        Prefix(b"")


def test_url_says_where_the_store_is() -> None:
    assert parse_engine_url("etcd://h1,h2:99")[1] == DEFAULT_PREFIX
    target, prefix = parse_engine_url("etcd://some:body@h1,h2:99/cells/a/?tls=1")
    assert (str(target), prefix, target.user) == ("h1:2379,h2:99", b"/cells/a/", "some")
    assert target.tls is not None
    with pytest.raises(InvalidRequest, match="%2F"):
        parse_engine_url("etcd://some:bo/dy@h1")
