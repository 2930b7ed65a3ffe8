"""The other members of a cell, asked and answered before any etcd runs.

A node whose data directory is empty answers at its peer address, where its etcd will be, that it is
empty; and it asks the others at theirs.  Both use the request that etcd itself answers there, GET
/members: an etcd that runs answers with its members, an empty node with the name of its cell.
"""

from __future__ import annotations

import asyncio
import functools
import http.client
import json
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from quoracy.errors import InvalidRequest, Unavailable
from quoracy.server.cell.bootstrap import KnownMember, View
from quoracy.server.cell.config import CellConfig, CellMember, CellTls
from quoracy.server.cell.etcd_process import listen_host
from quoracy.server.config import Address
from quoracy.server.listeners import bind

__all__ = ["answering", "ask"]


_ASK_S_MAX = 2.0
_ANSWER_BYTES_MAX = 1024 * 1024
_REQUEST_BYTES_MAX = 16 * 1024
# Connections that are answered at a time; one more is closed at once.
_OPEN_MAX = 32


@asynccontextmanager
async def answering(config: CellConfig) -> AsyncIterator[None]:
    """Answer at our peer address that we have no data."""
    body = json.dumps({"quoracy_cell": config.name, "member": config.node, "empty": True})
    answer = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}"
    context = None if config.tls is None else _context(config.tls, ssl.PROTOCOL_TLS_SERVER)
    own = config.own
    place = await asyncio.to_thread(listen_host, own.host)
    with bind(Address(place, own.peer_port), setting="--cell") as listener:
        listener.setblocking(False)
        listener.listen()
        async with _accepting(listener, lambda each: _answer(each, answer.encode(), context)):
            yield


@asynccontextmanager
async def _accepting(
    listener: socket.socket, handle: Callable[[socket.socket], Coroutine[None, None, None]]
) -> AsyncIterator[None]:
    """Handle connections until the block ends; then close those that are open.

    Not asyncio's server: one that is closed between accepting a connection and setting it up leaves the
    connection open.
    """
    loop = asyncio.get_running_loop()
    open_ones: set[asyncio.Task[None]] = set()

    def accept() -> None:
        try:
            connection, _ = listener.accept()
        except OSError:  # it went away again
            return
        if len(open_ones) >= _OPEN_MAX:
            connection.close()
            return
        connection.setblocking(False)
        task = loop.create_task(handle(connection))
        open_ones.add(task)
        task.add_done_callback(open_ones.discard)

    loop.add_reader(listener.fileno(), accept)
    try:
        yield
    finally:
        loop.remove_reader(listener.fileno())
        await asyncio.sleep(0)  # a task that never began would not close its connection
        handled = list(open_ones)
        for task in handled:
            task.cancel()
        await asyncio.gather(*handled, return_exceptions=True)


async def _answer(connection: socket.socket, answer: bytes, context: ssl.SSLContext | None) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_REQUEST_BYTES_MAX)
    protocol = asyncio.StreamReaderProtocol(reader)
    # Cancelling this in its first moments would lose sight of the connection while it is set up.
    setting_up = asyncio.ensure_future(
        loop.connect_accepted_socket(
            lambda: protocol,
            connection,
            ssl=context,
            ssl_handshake_timeout=None if context is None else _ASK_S_MAX,
        )
    )
    try:
        async with asyncio.timeout(_ASK_S_MAX):
            transport, _ = await asyncio.shield(setting_up)
            await reader.readuntil(b"\r\n\r\n")
            transport.write(answer)
            await reader.read()  # until the peer has read it and closed
    except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return  # the peer is gone, or asked something else
    finally:
        setting_up.add_done_callback(functools.partial(_abort, connection))


def _abort(connection: socket.socket, set_up: asyncio.Future[tuple[Any, Any]]) -> None:
    if set_up.cancelled() or set_up.exception() is not None:
        connection.close()
    else:
        set_up.result()[0].abort()


async def ask(config: CellConfig, member: CellMember) -> View | None:
    """Ask at another member's peer address; None if there is no answer.

    Raises `InvalidRequest` if a member of another cell answers.
    """
    return await asyncio.to_thread(_ask, config, member)


def _ask(config: CellConfig, member: CellMember) -> View | None:
    connection: http.client.HTTPConnection
    if config.tls is None:
        connection = http.client.HTTPConnection(member.host, member.peer_port, timeout=_ASK_S_MAX)
    else:
        context = _context(config.tls, ssl.PROTOCOL_TLS_CLIENT)
        connection = http.client.HTTPSConnection(
            member.host, member.peer_port, timeout=_ASK_S_MAX, context=context
        )
    try:
        connection.request("GET", "/members")
        said = json.loads(connection.getresponse().read(_ANSWER_BYTES_MAX))
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
    return _view(config, member, said)


def _view(config: CellConfig, member: CellMember, said: object) -> View | None:
    match said:
        case {"quoracy_cell": str(cell), "member": str(name), "empty": True}:
            if (cell, name) != (config.name, member.name):
                raise InvalidRequest(
                    f"at {member.peer} is {name!r} of the cell {cell!r}, where {member.name!r} of the "
                    f"cell {config.name!r} was expected. Check --cell, --node and --cell-name."
                )
            return View()
        case [*members] if members:
            return View(tuple(_known(each) for each in members if isinstance(each, dict)))
        case _:  # an etcd that is starting, or something else
            return None


def _known(fields: dict[str, object]) -> KnownMember:
    def texts(name: str) -> tuple[str, ...]:
        found = fields.get(name)
        return tuple(str(each) for each in found) if isinstance(found, list) else ()

    # 64 bits are too many for a JSON number in some languages, but Go writes one.
    number = fields.get("id", 0)
    return KnownMember(
        id=number if isinstance(number, int) else 0,
        name=str(fields.get("name", "")),
        peer_urls=texts("peerURLs"),
        client_urls=texts("clientURLs"),
    )


def _context(tls: CellTls, protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    try:
        context.load_cert_chain(tls.cert, tls.key)
        context.load_verify_locations(cafile=tls.ca)
    except OSError as error:  # which an SSLError is as well
        raise Unavailable(f"--cell-cert, --cell-key, --cell-ca cannot be used: {error}.") from error
    context.verify_mode = ssl.CERT_REQUIRED
    return context
