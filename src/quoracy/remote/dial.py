"""Connecting to a server: TLS, the handshake, and the options of a connection."""

from __future__ import annotations

import asyncio
import os
import ssl
from dataclasses import dataclass
from typing import cast

from quoracy.errors import InvalidRequest
from quoracy.remote.channel import Channel
from quoracy.remote.errors import CallLost, NotReached
from quoracy.remote.urls import Address, TlsOptions

__all__ = ["Channel", "ChannelOptions", "connect", "make_context"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelOptions:
    """How a connection behaves.

    connect_s: how long making a connection may take, or the next server is tried.
    silence_s: after so long without a byte while calls are open, the server is asked if it is there.
        (etcd hangs up on clients that ask more often than every 5 s.)
    answer_s: how long it has to answer that.
    answer_bytes_max: the largest message taken.
    require_leader: a member of an etcd cluster that knows no leader refuses calls and ends streams at
        once, instead of keeping them until it finds one.
    """

    connect_s: float = 3.0
    silence_s: float = 10.0
    answer_s: float = 5.0
    answer_bytes_max: int = 256 * 1024 * 1024
    require_leader: bool = False


async def connect(
    address: Address,
    *,
    tls: ssl.SSLContext | None,
    server_name: str | None,
    timeout_s: float,
    options: ChannelOptions,
) -> Channel:
    """Connect and shake hands.  Raises `NotReached`, which says why."""
    loop = asyncio.get_running_loop()
    channel = Channel(address, options, secure=tls is not None)
    try:
        async with asyncio.timeout(timeout_s):
            await loop.create_connection(
                lambda: cast(asyncio.Protocol, channel),  # it has all methods of one
                address.host,
                address.port,
                ssl=tls,
                server_hostname=(server_name or address.host) if tls is not None else None,
            )
            await channel.ready
    except TimeoutError as error:
        channel.abort("it did not answer in time")
        raise NotReached(f"{address} did not answer within {timeout_s:g} s") from error
    except ssl.SSLCertVerificationError as error:
        raise NotReached(
            f"{address} has a certificate that cannot be trusted: {error.verify_message}"
        ) from error
    except OSError as error:
        # asyncio says "Connect call failed"; the number says why.
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        raise NotReached(f"{address}: {why}") from error
    except CallLost as error:
        raise NotReached(f"{address}: {error.cause}") from error
    except BaseException:
        channel.abort("the attempt was given up")
        raise
    return channel


def make_context(options: TlsOptions) -> ssl.SSLContext:
    """A TLS context for gRPC: HTTP/2 is agreed on, the server's certificate and name are verified.

    Raises `InvalidRequest`, which names the file that cannot be used.
    """
    try:
        context = ssl.create_default_context(cafile=options.ca)
    except (OSError, ssl.SSLError) as error:
        raise InvalidRequest(f"TLS: {options.ca} has no certificates to trust: {error}") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2"])
    if options.cert is not None:
        try:
            context.load_cert_chain(options.cert, options.key)
        except (OSError, ssl.SSLError) as error:
            raise InvalidRequest(
                f"TLS: the certificate {options.cert} with key {options.key} cannot be used: {error}"
            ) from error
    return context
