"""A TLS context for gRPC: HTTP/2 is agreed on, the server's certificate and name are verified."""

from __future__ import annotations

import ssl

from quoracy.errors import InvalidRequest
from quoracy.remote.urls import TlsOptions

__all__ = ["make_context"]


def make_context(options: TlsOptions) -> ssl.SSLContext:
    """Raises `InvalidRequest`, which names the file that cannot be used."""
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
