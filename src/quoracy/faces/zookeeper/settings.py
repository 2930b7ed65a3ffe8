"""What can be set about the ZooKeeper face, with ZooKeeper's own defaults.

Each field says which setting of ZooKeeper it is; `conf` and the documentation use that name.
"""

from __future__ import annotations

import msgspec

__all__ = ["ZooKeeperSettings"]


class ZooKeeperSettings(msgspec.Struct, frozen=True):
    """Times are in milliseconds, as ZooKeeper writes them."""

    tick_time: int = 2000  # tickTime
    min_session_timeout: int = -1  # minSessionTimeout; -1: twice the tick
    max_session_timeout: int = -1  # maxSessionTimeout; -1: twenty ticks
    max_client_cnxns: int = 60  # maxClientCnxns, from one address; 0: any number
    max_cnxns: int = 0  # maxCnxns, from all together; 0: any number
    jute_maxbuffer: int = 0xFFFFF  # jute.maxbuffer, the largest request in bytes
    global_outstanding_limit: int = 1000  # globalOutstandingLimit
    commands_whitelist: frozenset[str] = frozenset({"srvr"})  # 4lw.commands.whitelist; "*" is all
    container_check_interval: int = 60_000  # znode.container.checkIntervalMs
    container_max_per_minute: int = 10_000  # znode.container.maxPerMinute
    container_max_never_used: int = 0  # znode.container.maxNeverUsedIntervalMs; 0: for ever
    extended_types_enabled: bool = True  # extendedTypesEnabled: TTL nodes
    super_digest: str | None = None  # DigestAuthenticationProvider.superDigest
    skip_acl: bool = False  # skipACL

    @property
    def session_timeout_min(self) -> int:
        return self.tick_time * 2 if self.min_session_timeout == -1 else self.min_session_timeout

    @property
    def session_timeout_max(self) -> int:
        return self.tick_time * 20 if self.max_session_timeout == -1 else self.max_session_timeout
