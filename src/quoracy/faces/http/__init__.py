"""The HTTP face: health."""

from quoracy.faces.http.server import serve_http

__all__ = ["serve_http"]
