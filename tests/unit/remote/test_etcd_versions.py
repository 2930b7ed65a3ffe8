"""Which etcds are named as ones that corrupt data, or that a client can end."""

from __future__ import annotations

import pytest

from quoracy.remote.etcd_versions import known_faults


@pytest.mark.parametrize("version", ["3.5.0", "3.5.1", "3.5.2", "v3.5.1", "3.5.0-rc.0"])
def test_versions_with_corruption_are_named_with_the_bug_and_the_way_out(version: str) -> None:
    said = known_faults(version)
    assert said is not None
    assert version.removeprefix("v").partition("-")[0] in said
    assert "etcd#13766" in said
    assert "3.5.13" in said
    assert said.endswith(".")


@pytest.mark.parametrize("version", ["3.5.3", "3.5.4"])
def test_versions_that_a_client_can_end_are_named_as_such(version: str) -> None:
    said = known_faults(version)
    assert said is not None
    assert version in said
    assert "etcd#14110" in said
    assert "3.5.13" in said


@pytest.mark.parametrize("version", ["3.3.27", "3.4.0", "3.4.23", "3.4.30", "3.5.5", "3.5.12"])
def test_versions_whose_old_leader_revokes_leases_are_named_as_such(version: str) -> None:
    said = known_faults(version)
    assert said is not None
    assert version in said
    assert "etcd#15247" in said
    assert "3.5.13" in said
    assert "3.4.31" in said


@pytest.mark.parametrize(
    "version", ["3.4.31", "3.4.40", "3.5.13", "3.5.21", "3.6.0", "4.0.0", "", "unknown"]
)
def test_other_versions_are_not_blamed(version: str) -> None:
    assert known_faults(version) is None
