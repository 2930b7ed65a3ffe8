"""What the verbs about members are told in text: keys in files, metadata as k=v, settings by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from quoracy.errors import InvalidRequest

if TYPE_CHECKING:
    from quoracy.membership.runtime.keyring import KeyRing
    from quoracy.membership.settings import SwimSettings

__all__ = ["key_options", "read_key_file", "read_meta", "read_settings"]


def key_options(verb: Callable[..., Any]) -> Callable[..., Any]:
    """`--key-file` and `--label`, the same for whoever is a member and whoever asks one."""
    label = click.option(
        "--label",
        metavar="TEXT",
        default="",
        envvar="QUORACY_LABEL",
        show_envvar=True,
        help="The cluster's name: members of another one are not heard.",
    )
    key_file = click.option(
        "--key-file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        envvar="QUORACY_KEY_FILE",
        show_envvar=True,
        help="The cluster's keys, as `quoracy agent keygen` writes them: everything is encrypted.",
    )
    return key_file(label(verb))


def read_key_file(path: Path | None) -> KeyRing | None:
    """The keys in a file.  Raises `InvalidRequest` if it cannot be read, or is no key file."""
    if path is None:
        return None
    from quoracy.membership.runtime.keyring import KeyRing

    try:
        text = path.read_text(encoding="ascii")
    except OSError as error:
        raise InvalidRequest(f"the key file {path}: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise InvalidRequest(
            f"the key file {path} is not text. `quoracy agent keygen {path}.new` makes one."
        ) from error
    try:
        return KeyRing.from_text(text)
    except InvalidRequest as error:
        raise InvalidRequest(f"the key file {path}: {error}") from error


def read_meta(pairs: Iterable[str]) -> dict[str, str]:
    """
    >>> read_meta(["zone=a", "url=http://x/?a=b"])
    {'zone': 'a', 'url': 'http://x/?a=b'}
    """
    return dict(_pair(pair, "--meta", "zone=a") for pair in pairs)


def read_settings(pairs: Iterable[str], *, wide: bool) -> SwimSettings:
    """The defaults, or those for wide networks, with some replaced by name.

    >>> read_settings(["probe_interval_s=0.5"], wide=False).probe_interval_s
    0.5
    """
    import msgspec

    from quoracy.membership.settings import SwimSettings

    settings = SwimSettings.wide() if wide else SwimSettings()
    changes: dict[str, object] = {}
    kinds = {field.name: field.type for field in msgspec.structs.fields(SwimSettings)}
    for pair in pairs:
        name, text = _pair(pair, "--set", "probe_interval_s=0.5")
        if name not in kinds:
            raise InvalidRequest(f"--set {pair}: there is no {name}. Give one of {', '.join(kinds)}.")
        try:
            changes[name] = msgspec.convert(text, kinds[name], strict=False)
        except msgspec.ValidationError as error:
            raise InvalidRequest(f"--set {pair}: {error}.") from error
    return msgspec.structs.replace(settings, **changes)


def _pair(text: str, option: str, example: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InvalidRequest(f"{option} {text}: write NAME=VALUE, as in {option} {example}.")
    return name, value
