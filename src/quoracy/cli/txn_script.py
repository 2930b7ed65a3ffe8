r"""The small language of `quoracy txn`: compares, then what to do if they hold, and what if not.

    if
      mod("config/colour") = 1042
      exists(config)
    then
      put config/colour "dark green"
      get config/ --prefix
    else
      get config/colour

etcdctl's form is understood too: no headings, the three parts separated by an empty line.

    compare   TARGET(KEY) RELATION OPERAND | exists(KEY) | missing(KEY)
    TARGET    value val | version ver | create c | mod m | lease (operand in hexadecimal)
    RELATION  = == != < >
    operation put KEY VALUE [--lease ID] [--prev]
              get KEY [END] [--prefix] [--from-key] [--limit N] [--rev N] [--keys-only] [--count]
              del KEY [END] [--prefix] [--from-key] [--prev]

Words are bare, 'quoted as they are', or "quoted with escapes": \n \t \\ \" \xff \u00e9.
`#` starts a comment where a line starts.
"""

from __future__ import annotations

import re

from quoracy.cli.text import parse_lease
from quoracy.errors import InvalidRequest
from quoracy.store.model import (
    Compare,
    CompareTarget,
    Delete,
    KeyRange,
    Keys,
    Op,
    Put,
    Range,
    Relation,
    Txn,
)

__all__ = ["parse_txn"]

_TARGETS = {
    "value": CompareTarget.VALUE,
    "val": CompareTarget.VALUE,
    "version": CompareTarget.VERSION,
    "ver": CompareTarget.VERSION,
    "create": CompareTarget.CREATE,
    "c": CompareTarget.CREATE,
    "mod": CompareTarget.MOD,
    "m": CompareTarget.MOD,
    "lease": CompareTarget.LEASE,
}
# Ours, and what etcdctl prompts with: `success requests (get, put, del):`.
_HEADING = re.compile(r"(if|compares|then|success|else|failure)( requests( \([a-z, ]*\))?)?\s*:?")
_PART_OF = {"if": 0, "compares": 0, "then": 1, "success": 1, "else": 2, "failure": 2}
_WORD = r'"(?:[^"\\]|\\.)*"|\'[^\']*\''
_COMPARE = re.compile(
    rf"(?P<target>[a-z]+)\(\s*(?P<key>{_WORD}|[^\s\"'()]+)\s*\)"
    rf"(?:\s*(?P<relation>==|!=|=|<|>)\s*(?P<operand>{_WORD}|\S+))?",
    re.DOTALL,
)
_WORDS = re.compile(rf"(?:{_WORD}|[^\s\"'])+", re.DOTALL)
_PIECE = re.compile(rf"{_WORD}|[^\s\"']+", re.DOTALL)
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{3}|.)", re.DOTALL)
_ESCAPES = {
    "n": b"\n",
    "t": b"\t",
    "r": b"\r",
    "a": b"\a",
    "b": b"\b",
    "f": b"\f",
    "v": b"\v",
    "0": b"\0",
    "\\": b"\\",
    '"': b'"',
    "'": b"'",
}
_INT64_MAX = 2**63 - 1

_Lines = list[tuple[int, str]]


def parse_txn(script: str) -> Txn:
    """The transaction that a script describes; raises `InvalidRequest` with the line that is wrong."""
    parts = _parts(script)
    compares = tuple(_compare(number, line) for number, line in parts[0])
    then = tuple(_operation(number, line) for number, line in parts[1])
    otherwise = tuple(_operation(number, line) for number, line in parts[2])
    if not (compares or then or otherwise):
        raise InvalidRequest("the transaction is empty. `quoracy txn --help` shows how to write one.")
    return Txn(compares, then, otherwise)


def _parts(script: str) -> tuple[_Lines, _Lines, _Lines]:
    lines = [(number, line.strip()) for number, line in enumerate(script.splitlines(), start=1)]
    lines = [(number, line) for number, line in lines if not line.startswith("#")]
    parts: tuple[_Lines, _Lines, _Lines] = ([], [], [])
    if any(_HEADING.fullmatch(line) for _, line in lines):
        current = 0
        for number, line in lines:
            heading = _HEADING.fullmatch(line)
            if heading is not None:
                current = _PART_OF[heading[1]]
            elif line:
                parts[current].append((number, line))
        return parts
    current = 0
    for number, line in lines:
        if line and current > 2:
            raise _wrong(number, line, "comes after the third part; an empty line ends a part")
        if line:
            parts[current].append((number, line))
        else:
            current += 1
    return parts


def _compare(number: int, line: str) -> Compare:
    match = _COMPARE.fullmatch(line)
    if match is None:
        raise _wrong(number, line, 'is not a compare; write one as mod("key") = 12 or exists("key")')
    key = _unquote(match["key"], number, line)
    name, relation, operand = match["target"], match["relation"], match["operand"]
    if name in ("exists", "missing"):
        if relation is not None:
            raise _wrong(number, line, f"compares what cannot be compared; {name}(key) stands alone")
        return Compare.exists(key) if name == "exists" else Compare.missing(key)
    target = _TARGETS.get(name)
    if target is None:
        known = "value, version, create, mod, lease, exists, missing"
        raise _wrong(number, line, f"has no target of a compare; there are {known}")
    if relation is None:
        raise _wrong(number, line, f'compares with nothing; write {name}("key") = SOMETHING')
    value = _unquote(operand, number, line)
    return Compare(
        key,
        target,
        Relation("=" if relation == "==" else relation),
        value if target is CompareTarget.VALUE else _number(value, target, number, line),
    )


def _number(value: bytes, target: CompareTarget, number: int, line: str) -> int:
    text = value.decode("utf-8", "replace")
    if target is CompareTarget.LEASE:
        return 0 if text.strip("0") == "" and text else _lease(text, number)
    if not (text.isascii() and text.isdigit()) or int(text) > _INT64_MAX:
        raise _wrong(number, line, f"compares {target.value} with {text!r}, which is not a number")
    return int(text)


def _lease(text: str, number: int) -> int:
    try:
        return parse_lease(text)
    except InvalidRequest as error:
        raise InvalidRequest(f"line {number}: {error}") from error


def _operation(number: int, line: str) -> Op:
    verb, *rest = _words(number, line)
    arguments, flags, values = _options(number, line, rest)
    match verb[1], arguments:
        case b"put", [key, value]:
            _only(number, line, "put", flags, {"--prev"}, values, {"--lease"})
            lease = _lease(values["--lease"], number) if "--lease" in values else 0
            return Put(key, value, lease, prev_kv="--prev" in flags)
        case b"get", [key, *end] if len(end) < 2:
            allowed = {"--prefix", "--from-key", "--keys-only", "--count"}
            _only(number, line, "get", flags, allowed, values, {"--limit", "--rev"})
            return Range(
                _keys(number, line, key, end, flags),
                at=_natural(number, line, values, "--rev"),
                limit=_natural(number, line, values, "--limit"),
                keys_only="--keys-only" in flags,
                count_only="--count" in flags,
            )
        case ((b"del" | b"delete"), [key, *end]) if len(end) < 2:
            _only(number, line, "del", flags, {"--prefix", "--from-key", "--prev"}, values, set())
            return Delete(_keys(number, line, key, end, flags), prev_kv="--prev" in flags)
        case _:
            raise _wrong(
                number, line, "is no operation; write put KEY VALUE, get KEY [END] or del KEY [END]"
            )


def _options(
    number: int, line: str, words: list[tuple[bool, bytes]]
) -> tuple[list[bytes], set[str], dict[str, str]]:
    """Arguments, flags, and options that have a value."""
    arguments: list[bytes] = []
    flags: set[str] = set()
    values: dict[str, str] = {}
    pending = iter(words)
    only_arguments = False
    for quoted, word in pending:
        if quoted or only_arguments or not word.startswith(b"--"):
            arguments.append(word)
        elif word == b"--":
            only_arguments = True
        else:
            name, equals, value = word.decode("utf-8", "replace").partition("=")
            name = {"--prev-kv": "--prev", "--count-only": "--count"}.get(name, name)
            if name in ("--lease", "--limit", "--rev"):
                given = value if equals else next(pending, (False, b""))[1].decode("utf-8", "replace")
                if not given:
                    raise _wrong(number, line, f"has no value for {name}")
                values[name] = given
            else:
                flags.add(name)
    return arguments, flags, values


def _only(
    number: int,
    line: str,
    verb: str,
    flags: set[str],
    flags_allowed: set[str],
    values: dict[str, str],
    values_allowed: set[str],
) -> None:
    unknown = sorted((flags - flags_allowed) | (values.keys() - values_allowed))
    if unknown:
        known = ", ".join(sorted(flags_allowed | values_allowed))
        raise _wrong(number, line, f"has {unknown[0]}, which {verb} does not know; it knows {known}")


def _keys(number: int, line: str, key: bytes, end: list[bytes], flags: set[str]) -> Keys:
    if len(end) + ("--prefix" in flags) + ("--from-key" in flags) > 1:
        raise _wrong(number, line, "has more than one of END, --prefix and --from-key")
    if "--prefix" in flags:
        return KeyRange.prefix(key)
    if "--from-key" in flags:
        return KeyRange.from_key(key)
    return KeyRange(key, end[0]) if end else key


def _natural(number: int, line: str, values: dict[str, str], name: str) -> int | None:
    text = values.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()) or not int(text):
        raise _wrong(number, line, f"has {name} {text}, which is not a number above 0")
    return int(text)


def _words(number: int, line: str) -> list[tuple[bool, bytes]]:
    """The words of a line, and whether each was quoted."""
    words: list[tuple[bool, bytes]] = []
    at = 0
    for match in _WORDS.finditer(line):
        if line[at : match.start()].strip():
            break
        pieces = _PIECE.findall(match[0])
        value = b"".join(_unquote(piece, number, line) for piece in pieces)
        words.append((match[0][0] in "\"'", value))
        at = match.end()
    if line[at:].strip():
        raise _wrong(number, line, "has a quote that does not end")
    return words


def _unquote(word: str, number: int, line: str) -> bytes:
    if word[0] == "'":
        return _encode(word[1:-1])
    if word[0] != '"':
        return _encode(word)
    out, at = b"", 0
    body = word[1:-1]
    for match in _ESCAPE.finditer(body):
        out += _encode(body[at : match.start()]) + _escaped(match[1], number, line)
        at = match.end()
    return out + _encode(body[at:])


def _escaped(code: str, number: int, line: str) -> bytes:
    if code[0] == "x" and len(code) == 3:
        return bytes.fromhex(code[1:])
    if code[0] in "uU" and len(code) > 1:
        return chr(int(code[1:], 16)).encode("utf-8", "surrogatepass")
    if len(code) == 3 and int(code, 8) < 256:
        return bytes((int(code, 8),))
    known = _ESCAPES.get(code)
    if known is None:
        raise _wrong(number, line, f"has the unknown escape \\{code}")
    return known


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _wrong(number: int, line: str, why: str) -> InvalidRequest:
    return InvalidRequest(f"line {number}: `{line}` {why}.")
