"""The verbs that write keys: `put`, `del` and `txn`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import BinaryIO

import click

from quoracy.cli.endpoint import Endpoint, endpoint_options
from quoracy.cli.exits import Exit
from quoracy.cli.output import Column, Form, Output, output_options
from quoracy.cli.parameters import read_bytes, read_lease, usage_error
from quoracy.cli.selection import is_everything, selection_options
from quoracy.cli.text import escape, json_kv
from quoracy.store.api import Store
from quoracy.store.model import (
    Compare,
    DeleteResult,
    Keys,
    KeyValue,
    OpResult,
    Put,
    PutResult,
    Range,
    RangeResult,
    Txn,
    TxnResult,
)
from quoracy.store.rules import writes

__all__ = ["delete_command", "put_command", "txn_command"]


# -- put


@click.command("put")
@click.argument("key", type=read_bytes)
@click.argument("value", type=read_bytes)
@click.option("--lease", type=read_lease, metavar="ID", help="Let the key end with this lease.")
@click.option("--prev", is_flag=True, help="Show what the key held before.")
@click.option("--if-missing", is_flag=True, help="Only if the key does not exist.")
@click.option(
    "--if-mod", type=click.IntRange(min=0), metavar="REV", help="Only if it was last written at REV."
)
@click.option(
    "--if-version", type=click.IntRange(min=0), metavar="N", help="Only if this is its Nth version."
)
@output_options(Form.JSON)
@endpoint_options()
def put_command(
    key: bytes,
    value: bytes,
    lease: int | None,
    prev: bool,
    if_missing: bool,
    if_mod: int | None,
    if_version: int | None,
    output: Output,
    endpoint: Endpoint,
) -> int:
    """Write VALUE to KEY; with `-` for VALUE, whatever stdin holds, byte for byte.

    With a condition that does not hold nothing is written, what is there is shown, and the exit code
    is 3: that makes a compare-and-set out of a `get -o json` and a `put --if-mod`.

    \b
    Examples:
      quoracy put config/colour green
      quoracy put config/tls.pem - < tls.pem
      quoracy put leader ada --if-missing --lease 32695410dcc0ca06
      quoracy put counter 8 --if-mod 1042
    """
    if value == b"-":
        value = sys.stdin.buffer.read()
    compares = _conditions(key, if_missing, if_mod, if_version)
    write = Put(key, value, lease or 0, prev_kv=prev)

    async def write_it(store: Store) -> PutResult | TxnResult:
        if not compares:
            return await store.put(key, value, lease=lease or 0, prev_kv=prev)
        return await store.txn(Txn(compares, (write,), (Range(key),)))

    result = endpoint.tell(write_it)
    if isinstance(result, PutResult):
        _show_written(output, result.revision, result)
        return Exit.DONE
    (only,) = result.results
    if isinstance(only, PutResult):
        _show_written(output, result.revision, only)
        return Exit.DONE
    assert isinstance(only, RangeResult)
    _show_lost(output, key, result.revision, only.kvs[0] if only.kvs else None)
    return Exit.NO


def _conditions(
    key: bytes, if_missing: bool, if_mod: int | None, if_version: int | None
) -> tuple[Compare, ...]:
    compares = []
    if if_missing:
        compares.append(Compare.missing(key))
    if if_mod is not None:
        compares.append(Compare.mod_revision(key, "=", if_mod))
    if if_version is not None:
        compares.append(Compare.version(key, "=", if_version))
    return tuple(compares)


def _show_written(output: Output, revision: int, result: PutResult) -> None:
    prev_kv = result.prev_kv
    if output.is_json:
        document: dict[str, object] = {"revision": revision, "written": True}
        if prev_kv is not None:
            document["prev_kv"] = json_kv(prev_kv)
        output.document(document)
        return
    if prev_kv is not None:
        output.value(prev_kv.value)
    if output.terminal:
        output.line(f"revision {revision:,}", dim=True)


def _show_lost(output: Output, key: bytes, revision: int, kv: KeyValue | None) -> None:
    if output.is_json:
        document: dict[str, object] = {"revision": revision, "written": False}
        if kv is not None:
            document["kv"] = json_kv(kv)
        output.document(document)
        return
    state = (
        "it does not exist"
        if kv is None
        else f"it was written at revision {kv.mod_revision} and is version {kv.version}"
    )
    click.echo(f"quoracy: {escape(key)} was not written: {state}.", err=True)


# -- del


@click.command("del")
@click.argument("key", type=read_bytes)
@selection_options
@click.option("--prev", is_flag=True, help="Show what was deleted.")
@click.option("--yes", is_flag=True, help="Yes, really every key there is.")
@output_options(Form.JSON)
@endpoint_options()
def delete_command(keys: Keys, prev: bool, yes: bool, output: Output, endpoint: Endpoint) -> int:
    """Delete KEY, or with --prefix, --from-key or --range every key they cover, in one revision.

    Prints how many keys that were; exit code 3 if there was nothing to delete.

    \b
    Examples:
      quoracy del config/colour
      quoracy del jobs/ --prefix --prev
    """
    if is_everything(keys) and not yes:
        raise usage_error("this deletes every key there is. Add --yes if that is what you want.")
    result = endpoint.tell(lambda store: store.delete(keys, prev_kv=prev), create=False)
    if output.is_json:
        document: dict[str, object] = {"revision": result.revision, "deleted": result.deleted}
        if prev:
            document["prev_kvs"] = [json_kv(kv) for kv in result.prev_kvs]
        output.document(document)
    elif prev:
        output.table(
            (Column("key", "cyan"), Column("value")), [(kv.key, kv.value) for kv in result.prev_kvs]
        )
    else:
        output.line(str(result.deleted))
    return Exit.DONE if result.deleted else Exit.NO


# -- txn


@click.command("txn")
@click.argument("file", type=click.File("rb"), default="-")
@click.option("-i", "--interactive", is_flag=True, help="Prompt for each part, as etcdctl does.")
@output_options(Form.JSON)
@endpoint_options()
def txn_command(file: BinaryIO, interactive: bool, output: Output, endpoint: Endpoint) -> int:
    """Carry out the transaction that FILE describes, or stdin: all of it or nothing, in one revision.

    \b
    If every compare holds, `then` is carried out, otherwise `else`:
      if
        mod("config/colour") = 1042
        exists("config/owner")
      then
        put config/colour "dark green"
        put config/by ada --lease 32695410dcc0ca06
        del config/old/ --prefix
      else
        get config/colour

    \b
    Compares:   value version create mod lease (of a key) = != < > something; exists missing
    Operations: put KEY VALUE [--lease ID] [--prev]
                get KEY [END] [--prefix] [--from-key] [--limit N] [--rev N] [--keys-only] [--count]
                del KEY [END] [--prefix] [--from-key] [--prev]
    Words:      bare, 'quoted as they are', or "quoted with escapes": \\n \\" \\\\ \\xff
    Comments:   lines that start with #

    etcdctl's form without headings is understood too: three parts, each ended by an empty line.

    Exit code 0 if the compares held, 3 if not.
    """
    from quoracy.cli.txn_script import parse_txn

    script = _prompted(file) if interactive else file.read()
    txn = parse_txn(script.decode("utf-8", "surrogateescape"))
    if writes(txn.then) or writes(txn.otherwise):
        result = endpoint.tell(lambda store: store.txn(txn))
    else:
        result = endpoint.ask(lambda store: store.txn(txn))
    if output.is_json:
        output.document(_json_txn(result))
    else:
        _show(output, result)
    return Exit.DONE if result.succeeded else Exit.NO


def _prompted(file: BinaryIO) -> bytes:
    script = b""
    for heading in (
        "compares:",
        "success requests (get, put, del):",
        "failure requests (get, put, del):",
    ):
        click.echo(heading, err=True)
        while line := file.readline():
            script += line
            if not line.strip():
                break
    return script


def _show(output: Output, result: TxnResult) -> None:
    held, colour = ("succeeded", "green") if result.succeeded else ("failed", "yellow")
    output.line(held, **({"fg": colour, "bold": True} if output.terminal else {}))
    for each in result.results:
        for line in _lines(each):
            output.line(line)


def _lines(result: OpResult) -> list[str]:
    match result:
        case PutResult(prev_kv=kv):
            return ["put" if kv is None else f"put\t{escape(kv.value)}"]
        case DeleteResult():
            before = [f"\t{escape(kv.key)}\t{escape(kv.value)}" for kv in result.prev_kvs]
            return [f"del\t{result.deleted}", *before]
        case RangeResult():
            found = [f"\t{escape(kv.key)}\t{escape(kv.value)}" for kv in result.kvs]
            return [f"get\t{result.count}", *found]
        case TxnResult():
            return [f"txn\t{result.succeeded}"]


def _json_txn(result: TxnResult) -> Mapping[str, object]:
    return {
        "revision": result.revision,
        "succeeded": result.succeeded,
        "results": [_json_result(each) for each in result.results],
    }


def _json_result(result: OpResult) -> Mapping[str, object]:
    match result:
        case PutResult():
            kv = result.prev_kv
            return {"op": "put", **({"prev_kv": json_kv(kv)} if kv is not None else {})}
        case DeleteResult():
            document: dict[str, object] = {"op": "del", "deleted": result.deleted}
            if result.prev_kvs:
                document["prev_kvs"] = [json_kv(kv) for kv in result.prev_kvs]
            return document
        case RangeResult():
            return {
                "op": "get",
                "count": result.count,
                "more": result.more,
                "kvs": [json_kv(kv) for kv in result.kvs],
            }
        case TxnResult():
            return {"op": "txn", **_json_txn(result)}
