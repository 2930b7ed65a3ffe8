"""`quoracy txn`: compare, then write and read, atomically."""

from __future__ import annotations

from collections.abc import Mapping
from typing import BinaryIO

import click

from quoracy.cli.endpoint import Endpoint, endpoint_options
from quoracy.cli.exits import Exit
from quoracy.cli.output import Form, Output, output_options
from quoracy.cli.text import escape, json_kv
from quoracy.cli.txn_script import parse_txn
from quoracy.store.model import DeleteResult, OpResult, PutResult, RangeResult, TxnResult
from quoracy.store.rules import writes

__all__ = ["command"]


@click.command("txn", short_help="Compare, then write, atomically.")
@click.argument("file", type=click.File("rb"), default="-")
@click.option("-i", "--interactive", is_flag=True, help="Prompt for each part, as etcdctl does.")
@output_options(Form.JSON)
@endpoint_options()
def command(file: BinaryIO, interactive: bool, output: Output, endpoint: Endpoint) -> int:
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
