"""A TCP proxy on loopback whose network a test breaks: the one that users of Quoracy have, too."""

from quoracy.testing.tcp_proxy import TcpProxy, tcp_proxy

__all__ = ["TcpProxy", "tcp_proxy"]
