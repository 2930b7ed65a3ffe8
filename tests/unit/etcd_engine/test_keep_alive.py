"""A renewal is worth what the member is that answers it: after a standstill that is asked first."""

from __future__ import annotations

import pytest

from quoracy.clock import SystemClock
from quoracy.engines.etcd.opening import open_etcd
from tests.support.etcd_cluster import EtcdCluster


class _Jumping(SystemClock):
    """A clock that goes on elsewhere: to this process it is as if it had stood still."""

    ahead_s = 0.0

    def now(self) -> float:
        return super().now() + self.ahead_s


async def test_who_stood_still_asks_a_majority_before_it_believes_a_renewal(
    etcd: EtcdCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = _Jumping()
    async with open_etcd(etcd.target, clock=clock) as store:
        lease = await store.grant(60)
        remote, called = store.remote, []
        ask, renew = remote.newest_revision, remote.keep_alive

        async def asking(*args, **options):  # type: ignore[no-untyped-def]
            answer = await ask(*args, **options)
            called.append("asked")
            return answer

        async def renewing(*args, **options):  # type: ignore[no-untyped-def]
            called.append("renewed")
            return await renew(*args, **options)

        monkeypatch.setattr(remote, "newest_revision", asking)
        monkeypatch.setattr(remote, "keep_alive", renewing)
        await store.keep_alive(lease.id)
        assert called[0] == "renewed", "where nothing is in doubt it costs nothing more"
        called.clear()
        clock.ahead_s += 10.0
        await store.keep_alive(lease.id)
        assert (called[0], called[-1]) == ("asked", "renewed")
