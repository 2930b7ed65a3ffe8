"""What several faces share: HTTP/1.1, ASGI, and guards against requests from web pages."""
