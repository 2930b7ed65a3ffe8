"""The URL of servers: `etcd://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...][?tls=1&ca=PATH...]`.

`quoracy://` means the same: both servers speak one protocol.  Pure: nothing is opened here.
"""

from __future__ import annotations

from urllib.parse import parse_qsl, unquote

import msgspec

from quoracy.errors import InvalidRequest

__all__ = ["DEFAULT_PORT", "SCHEMES", "Address", "Target", "TlsOptions", "parse_url"]

DEFAULT_PORT = 2379
SCHEMES = ("etcd", "quoracy")
_PORT_MAX = 65_535
_YES, _NO = ("1", "true", "yes"), ("0", "false", "no")


class Address(msgspec.Struct, frozen=True):
    """One server's host and port."""

    host: str
    port: int = DEFAULT_PORT

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class TlsOptions(msgspec.Struct, frozen=True):
    """TLS, with the server's certificate and name verified: there is no way to leave that out.

    ca: a file of certificates to trust instead of the system's.
    cert, key: the client certificate, for servers that want one.
    server_name: the name the certificate must be for, if it is not the host's.
    """

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    server_name: str | None = None

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise InvalidRequest("TLS: cert and key belong together. Give both or neither.")


class Target(msgspec.Struct, frozen=True):
    """Where the store is, and the user that connects."""

    addresses: tuple[Address, ...]
    user: str | None = None
    password: str | None = None
    tls: TlsOptions | None = None

    def __str__(self) -> str:
        return ",".join(str(address) for address in self.addresses)


def parse_url(url: str) -> Target:
    """Take a URL apart.  Raises `InvalidRequest`, which never shows the password.

    >>> parse_url("etcd://10.0.0.1,[::1]:2380").addresses
    (Address(host='10.0.0.1', port=2379), Address(host='::1', port=2380))
    """
    scheme, separator, rest = url.partition("://")
    if scheme not in SCHEMES or not separator:
        raise InvalidRequest(
            f"{_without_password(url)!r} is no server's URL. It looks like etcd://127.0.0.1:2379."
        )
    rest, _, query = rest.partition("?")
    userinfo, at, hosts = rest.rpartition("@")
    path = hosts.partition("/")[2]
    hosts = hosts.partition("/")[0]
    if path:
        raise InvalidRequest(f"{_without_password(url)!r} has the path {path!r}; a store has none.")
    addresses = tuple(_address(text, url) for text in hosts.split(","))
    if len(set(addresses)) < len(addresses):
        raise InvalidRequest(f"{_without_password(url)!r} names a server twice.")
    user: str | None = None
    password: str | None = None
    if at:
        name, colon, secret = userinfo.partition(":")
        if not name or not colon:
            raise InvalidRequest(
                f"{_without_password(url)!r}: before the @ belongs USER:PASSWORD, with %40 for an @ "
                "and %3A for a colon in them."
            )
        user, password = unquote(name), unquote(secret)
    return Target(addresses, user, password, _tls(query, url))


def _address(text: str, url: str) -> Address:
    shown = _without_password(url)
    if text.startswith("["):
        host, closed, port = text[1:].partition("]")
        if not closed or (port and not port.startswith(":")):
            raise InvalidRequest(f"{shown!r}: {text!r} is no address. IPv6 looks like [::1]:2379.")
        port = port[1:] if port else str(DEFAULT_PORT)
    elif text.count(":") > 1:
        raise InvalidRequest(f"{shown!r}: put the IPv6 address {text!r} in brackets: [::1]:2379.")
    else:
        host, colon, port = text.partition(":")
        port = port if colon else str(DEFAULT_PORT)
    if not host:
        raise InvalidRequest(f"{shown!r} names no host in {text!r}.")
    if not (port.isascii() and port.isdigit()) or not 0 < int(port) <= _PORT_MAX:
        raise InvalidRequest(f"{shown!r}: {port!r} is no port. Give 1 to {_PORT_MAX}.")
    return Address(host, int(port))


def _tls(query: str, url: str) -> TlsOptions | None:
    if not query:
        return None
    shown = _without_password(url)
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True)
    except ValueError as error:
        raise InvalidRequest(f"{shown!r}: after the ? belongs NAME=VALUE&NAME=VALUE.") from error
    options = dict(pairs)
    if len(options) < len(pairs):
        raise InvalidRequest(f"{shown!r} gives an option twice.")
    wanted = options.pop("tls", "1").lower()
    if wanted not in _YES + _NO:
        raise InvalidRequest(f"{shown!r}: tls is {wanted!r}. Give 1 or 0.")
    unknown = sorted(set(options) - {"ca", "cert", "key", "server_name"})
    if unknown:
        raise InvalidRequest(
            f"{shown!r}: {', '.join(unknown)} is no option. "
            "There are tls, ca, cert, key and server_name."
        )
    if wanted in _NO:
        if options:
            raise InvalidRequest(f"{shown!r} turns TLS off and configures it. Do one of the two.")
        return None
    return TlsOptions(**options)


def _without_password(url: str) -> str:
    before, at, after = url.rpartition("@")
    if not at:
        return url
    scheme, separator, userinfo = before.partition("://")
    return f"{scheme}{separator}{userinfo.partition(':')[0]}:...@{after}"
