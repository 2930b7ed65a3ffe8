"""The names that `quoracy.membership` promises; a change here is a change for users."""

from __future__ import annotations

import subprocess
import sys

import pytest

from quoracy import membership

PUBLIC = """
    Changed Cluster ClusterEvent ClusterState ClusterStatistics Conflict GossipSettings Health
    HealthChange KeyRing MemberChangeKind MemberState MemberView Received Snapshot StateChanged
    StateMissed SwimSettings generate_key join
"""


def test_public_names_are_these_and_exist() -> None:
    assert sorted(membership.__all__) == sorted(PUBLIC.split())
    assert [name for name in membership.__all__ if not hasattr(membership, name)] == []
    assert set(membership.__all__) <= set(dir(membership))


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Nobody'"):
        membership.Nobody  # noqa: B018


def loaded_by(statement: str) -> set[str]:
    """Which of what is heavy, or does input and output, a new Python has after a statement."""
    script = (
        f"{statement}; import sys; print(*{{'asyncio', 'cryptography', 'rich'}} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("core", ["swim", "gossip", "detectors"])
def test_a_core_alone_loads_no_sockets_and_no_cryptography(core: str) -> None:
    assert loaded_by(f"import quoracy.membership.{core}") == set()


def test_without_a_key_the_runtime_loads_no_cryptography() -> None:
    assert loaded_by("import quoracy.membership as m; m.join") == {"asyncio"}
