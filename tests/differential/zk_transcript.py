"""What clients were told, as text; what ZooKeeper said is kept, so that a case tests what it means to.

A case whose requests were all refused for another reason would compare well and show nothing.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tests.differential.zk_connection import Closed, Connected, EventCame, Replied
from tests.differential.zk_seen import Seen

__all__ = ["keep", "kept", "transcript"]

_HEAD = "== "
_SHOWN_MAX = 160
_PARTS_SHOWN_MAX = 20

# The root and what is below /zookeeper are never new: what they count goes on from case to case.
_NUMBERED_PATH = re.compile(r"'/([^/']*)\d{10}'")
_NUMBERED_NAME = re.compile(r"'([^/']*)\d{10}'")

_EVENTS = {1: "created", 2: "deleted", 3: "changed", 4: "children of"}
_ERRORS = {
    -2: "RuntimeInconsistency",
    -5: "MarshallingError",
    -6: "Unimplemented",
    -8: "BadArguments",
    -101: "NoNode",
    -102: "NoAuth",
    -103: "BadVersion",
    -108: "NoChildrenForEphemerals",
    -110: "NodeExists",
    -111: "NotEmpty",
    -114: "InvalidACL",
    -115: "AuthFailed",
    -121: "NoWatcher",
    -123: "ReconfigDisabled",
}


def transcript(told: list[tuple[int, Seen]]) -> str:
    return "\n".join(f"{client} {_said(one)}" for client, one in told)


def _said(one: Seen) -> str:
    match one.item:
        case Connected(timeout_ms=0):
            return "refused"
        case Connected():
            return f"connected as {one.shape[3]}, {one.item.timeout_ms} ms"
        case Closed():
            return "hung up"
        case EventCame():
            kind, _, path = one.shape[3][:3]
            return f"< {_EVENTS.get(kind, kind)} {path!a}"
        case Replied():
            err = one.item.err
            said = _value(one.reading.shape) if err == 0 else _ERRORS.get(err, str(err))
            said = _NUMBERED_PATH.sub(r"'/\1#'", said)
            if one.item.request is not None and one.item.request.values[:1] in (("/",), ("",)):
                said = _NUMBERED_NAME.sub(r"'\1#'", said)
            return f"{one.shape[0]} {said}".rstrip()


def _value(value: Any) -> str:
    match value:
        case {"version": version, "cversion": cversion, "aversion": aversion}:
            owner = "" if value["owner"] == "nobody" else f" {value['owner']}"
            size, children = value["data_length"], value["children"]
            if value["timed"][0] is False:
                return f"<system {children}ch>"
            return f"<v{version} c{cversion} a{aversion} {size}B {children}ch{owner}>"
        case ("error", int() as err, _):
            return "undone" if err == 0 else _ERRORS.get(err, str(err))
        case ("end", *_):
            return "."
        case (int() as op, 0, tuple() as values) if values or op in (2, 13):
            return f"{op}:{_value(values)}"
        case tuple() if len(value) > _PARTS_SHOWN_MAX:
            return (
                f"({_value(value[0])} {_value(value[1])} ... {_value(value[-2])} {len(value)} in all)"
            )
        case tuple():
            return "(" + " ".join(map(_value, value)) + ")" if value else ""
        case _:
            said = ascii(value)
            return said if len(said) <= _SHOWN_MAX else f"{said[:40]}...{len(said)}"


def kept(file: Path) -> dict[str, str]:
    cases: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in file.read_text("ascii").splitlines():
        if line.startswith(_HEAD):
            lines = cases.setdefault(line.removeprefix(_HEAD), [])
        elif line:
            lines.append(line)
    return {name: "\n".join(lines) for name, lines in cases.items()}


def keep(file: Path, cases: dict[str, str]) -> None:
    file.write_text(
        "\n\n".join(f"{_HEAD}{name}\n{text}" for name, text in cases.items()) + "\n", "ascii"
    )
