"""Which member is asked."""

from __future__ import annotations

from quoracy.engines.etcd.members import leader_of
from quoracy.remote.maintenance import EndpointStatus
from quoracy.remote.urls import Address
from quoracy.wire.etcd.maintenance import StatusResponse
from quoracy.wire.etcd.rpc import ResponseHeader


def _member(number: int, *, leader: int, term: int) -> EndpointStatus:
    status = StatusResponse(
        header=ResponseHeader(member_id=number, raft_term=term), leader=leader, raftTerm=term
    )
    return EndpointStatus(Address("h", number), status)


def test_the_member_that_leads_is_found() -> None:
    members = [_member(1, leader=2, term=5), _member(2, leader=2, term=5), _member(3, leader=0, term=5)]
    assert leader_of(members) == Address("h", 2)
    assert leader_of(members[:1]) is None
    assert leader_of([EndpointStatus(Address("h", 1), None)]) is None


def test_one_that_stood_still_and_says_it_leads_yet_is_not_believed() -> None:
    stale, leads = _member(1, leader=1, term=5), _member(2, leader=2, term=7)
    assert leader_of([stale, leads]) == leader_of([leads, stale]) == Address("h", 2)
