"""The language of `quoracy txn`, and the verb."""

from __future__ import annotations

import pytest

from quoracy.cli.txn_script import parse_txn
from quoracy.errors import InvalidRequest
from quoracy.store.model import Compare, Delete, KeyRange, Put, Range, Txn
from tests.unit.cli.asking import Ask


def test_headings_and_blank_lines() -> None:
    script = """
    # who may change it
    if
      mod("config/colour") = 1042

      exists(owner)
      missing('tomb stone')
    then:
      put config/colour "dark green"
      get config/ --prefix --keys-only
    else
      del config/old/ --prefix --prev
    """
    assert parse_txn(script) == Txn(
        (
            Compare.mod_revision(b"config/colour", "=", 1042),
            Compare.exists(b"owner"),
            Compare.missing(b"tomb stone"),
        ),
        (
            Put(b"config/colour", b"dark green"),
            Range(KeyRange.prefix(b"config/"), keys_only=True),
        ),
        (Delete(KeyRange.prefix(b"config/old/"), prev_kv=True),),
    )


def test_form_of_etcdctl() -> None:
    compares = 'mod("key1") > "0"\nval("k") = "a b"\n\n'
    script = f'{compares}put key1 "overwrote-key1"\n\nput key1 "created"\nput k2 x\n\n'
    assert parse_txn(script) == Txn(
        (Compare.mod_revision(b"key1", ">", 0), Compare.value(b"k", "=", b"a b")),
        (Put(b"key1", b"overwrote-key1"),),
        (Put(b"key1", b"created"), Put(b"k2", b"x")),
    )


def test_prompts_of_etcdctl_may_be_left_in() -> None:
    which = "requests (get, put, del):"
    script = f'compares:\nver("k") = "1"\n\nsuccess {which}\nget k\n\nfailure {which}\n'
    assert parse_txn(script) == Txn((Compare.version(b"k", "=", 1),), (Range(b"k"),))


@pytest.mark.parametrize(
    ("line", "compare"),
    [
        ("ver(k) = 1", Compare.version(b"k", "=", 1)),
        ("version(k) == 1", Compare.version(b"k", "=", 1)),
        ("c(k) != 1", Compare.create_revision(b"k", "!=", 1)),
        ("create(k)<1", Compare.create_revision(b"k", "<", 1)),
        ("m(k)>1", Compare.mod_revision(b"k", ">", 1)),
        ('value("k") = 12', Compare.value(b"k", "=", b"12")),
        ('lease(k) = "ff"', Compare.lease(b"k", "=", 255)),
        ("lease(k) = 0", Compare.lease(b"k", "=", 0)),
    ],
)
def test_compares(line: str, compare: Compare) -> None:
    assert parse_txn(f"if\n{line}").compares == (compare,)


@pytest.mark.parametrize(
    ("word", "data"),
    [
        ('"a\\n\\t\\"\\\\"', b'a\n\t"\\'),
        ('"\\xff\\x00"', b"\xff\0"),
        ('"\\u00e9\\101"', "éA".encode()),
        ("'a\\n'", b"a\\n"),
        ("a'b c'd", b"ab cd"),
        ("é", "é".encode()),
        ('""', b""),
        ("'--prefix'", b"--prefix"),
    ],
)
def test_words(word: str, data: bytes) -> None:
    assert parse_txn(f"then\nput k {word}").then == (Put(b"k", data),)


@pytest.mark.parametrize(
    ("line", "op"),
    [
        ("put k v --lease=ff --prev-kv", Put(b"k", b"v", 255, prev_kv=True)),
        ("put k v --lease 0xff", Put(b"k", b"v", 255)),
        ("put -- --prefix v", Put(b"--prefix", b"v")),
        ("get a b --limit 3 --rev 7", Range(KeyRange(b"a", b"b"), limit=3, at=7)),
        ("get a --from-key --count", Range(KeyRange.from_key(b"a"), count_only=True)),
        ("del a", Delete(b"a")),
        ("delete a b", Delete(KeyRange(b"a", b"b"))),
    ],
)
def test_operations(line: str, op: object) -> None:
    assert parse_txn(f"then\n{line}").then == (op,)


@pytest.mark.parametrize(
    ("script", "hint"),
    [
        ("", "empty"),
        ("if\nmod(k)", "line 2"),
        ("if\nmood(k) = 1", "exists, missing"),
        ("if\nmod(k) = x", "not a number"),
        ("if\nexists(k) = 1", "stands alone"),
        ("then\nput k", "put KEY VALUE"),
        ("then\nput k v w", "put KEY VALUE"),
        ("then\nget k --prefix --from-key", "more than one"),
        ("then\nget k --lease 1", "--lease"),
        ("then\nget k --limit", "--limit"),
        ("then\nget k --limit x", "not a number"),
        ('then\nput k "v', "quote"),
        ('then\nput k "\\q"', "escape"),
        ("then put k v", "not a compare"),
        ("\n\n\nput k v", "third part"),
    ],
)
def test_mistake_names_its_line_and_what_is_expected(script: str, hint: str) -> None:
    with pytest.raises(InvalidRequest, match=r"(line [0-9]|empty)") as caught:
        parse_txn(script)
    assert hint in str(caught.value)


def test_verb_says_which_way_it_went(ask: Ask) -> None:
    ask("put", "k", "1")
    script = b"if\n value(k) = 1\nthen\n put k 2 --prev\n get k\nelse\n get k\n"
    first = ask("txn", stdin=script)
    assert (first.code, first.lines) == (0, ["succeeded", "put\t1", "get\t1", "\tk\t2"])
    second = ask("txn", "-o", "json", stdin=script)
    assert (second.code, second.json["succeeded"]) == (3, False)
    assert second.json["results"][0]["kvs"][0]["value"] == "2"


def test_verb_refuses_a_wrong_script_in_one_line(ask: Ask) -> None:
    said = ask("txn", stdin=b"if\nnonsense\n")
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "line 2: `nonsense`" in said.err


def test_key_written_twice_is_refused(ask: Ask) -> None:
    said = ask("txn", stdin=b"then\nput k 1\nput k 2\n")
    assert said.code == 2
    assert "written twice" in said.err
