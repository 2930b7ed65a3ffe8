"""The HTTP face: health."""

from quorate.faces.http.server import serve_http

__all__ = ["serve_http"]
