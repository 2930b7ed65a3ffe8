"""Counters of a server and its connections: what adds up, what starts again, what never grows."""

from __future__ import annotations

import pytest

from quoracy.faces.zookeeper.admin.stats import Latency, ServerStats, java_host
from quoracy.wire.zookeeper.codes import XID_PING, Op


def test_requests_wait_from_their_arrival_to_their_answer() -> None:
    server = ServerStats(now=0.0)
    one = server.connected("10.0.0.1", 1, now=0.0, wall=0.0)
    other = server.connected("10.0.0.2", 2, now=0.0, wall=0.0)
    one.received(3, 120)
    other.received(1, 40)
    assert (one.queued, other.queued, server.outstanding) == (3, 1, 4)
    one.answered(Op.GET_DATA, 1, 7, 100, 0.0, 0.5, False)
    assert (one.queued, server.outstanding) == (2, 3)
    assert (server.packets_received, server.packets_sent, server.bytes_received_count) == (4, 1, 160)


def test_what_a_lost_connection_was_not_answered_waits_no_longer() -> None:
    server = ServerStats(now=0.0)
    stats = server.connected("10.0.0.1", 1, now=0.0, wall=0.0)
    stats.received(3, 120)
    stats.abandoned(1)
    assert server.outstanding == 2
    server.disconnected(stats)
    assert (server.outstanding, server.connections) == (0, set())


def test_latency_of_the_server_is_that_of_reads_and_writes_together() -> None:
    server = ServerStats(now=0.0)
    stats = server.connected("10.0.0.1", 1, now=0.0, wall=0.0)
    stats.received(2, 0)
    stats.answered(Op.SET_DATA, 1, 1, 10, 1.0, 1.25, True)
    stats.answered(Op.GET_DATA, 2, 1, 10, 2.0, 2.125, False)
    assert (server.latency_min_ms, server.latency_avg_ms, server.latency_max_ms) == (125, 187.5, 250)
    assert (server.update_latency.count, server.read_latency.count) == (1, 1)
    assert (stats.latency_min_ms, stats.latency_avg_ms, stats.latency_max_ms) == (125, 187, 250)
    assert stats.last_latency_ms == 125


def test_special_xids_do_not_hide_the_last_real_one() -> None:
    server = ServerStats(now=0.0)
    stats = server.connected("10.0.0.1", 1, now=0.0, wall=0.0)
    stats.answered(Op.GET_DATA, 17, 1, 10, 0.0, 0.0, False)
    stats.answered(Op.PING, XID_PING, 2, 10, 0.0, 0.0, False)
    assert (stats.last_cxid, stats.last_zxid, stats.last_op) == (17, 2, Op.PING)


def test_reset_of_the_server_leaves_what_is_under_way() -> None:
    server = ServerStats(now=0.0)
    stats = server.connected("10.0.0.1", 1, now=0.0, wall=0.0)
    stats.received(2, 80)
    stats.answered(Op.GET_DATA, 1, 1, 10, 0.0, 0.25, False)
    stats.notified(30)
    server.reset()
    assert (server.packets_received, server.packets_sent, server.latency_max_ms) == (0, 0, 0)
    assert (server.last_response_bytes, server.min_response_bytes) == (-1, -1)
    assert (server.outstanding, len(server.connections)) == (1, 1)
    assert (stats.received_count, stats.sent_count) == (2, 2)
    assert server.uptime_ms(2.0) == 2000


def test_reset_of_a_connection_leaves_who_it_is() -> None:
    server = ServerStats(now=0.0)
    stats = server.connected("10.0.0.1", 1, now=3.0, wall=50.0)
    stats.session_id = 7
    stats.received(2, 80)
    stats.answered(Op.GET_DATA, 1, 1, 10, 0.0, 0.25, False)
    stats.reset()
    assert (stats.received_count, stats.sent_count, stats.last_op, stats.last_cxid) == (0, 0, None, -1)
    assert (stats.latency_min_ms, stats.latency_avg_ms, stats.latency_max_ms) == (0, 0, 0)
    assert (stats.session_id, stats.queued, stats.established_ms) == (7, 1, 50_000)


def test_sizes_of_answers_have_a_smallest_a_largest_and_a_last() -> None:
    server = ServerStats(now=0.0)
    stats = server.connected("10.0.0.1", 1, now=0.0, wall=0.0)
    for size in (50, 20, 90, 60):
        stats.answered(Op.GET_DATA, 1, 1, size, 0.0, 0.0, False)
    sizes = server.last_response_bytes, server.min_response_bytes, server.max_response_bytes
    assert (sizes, server.response_bytes) == ((60, 20, 90), 220)


def test_percentiles_are_those_of_the_newest_and_need_no_more_memory_for_more() -> None:
    latency = Latency()
    assert latency.percentiles_ms([0.5]) == [0]
    for _ in range(10_000):
        latency.add(9_000.0)
    for number in range(4096):
        latency.add(float(number))
    assert latency.percentiles_ms([0.5, 0.99]) == [2_048_000, 4_055_000]
    assert (latency.count, latency.longest_s) == (14_096, 9_000.0)


@pytest.mark.parametrize(
    ("host", "shown"),
    [
        ("10.0.0.7", "10.0.0.7"),
        ("::1", "[0:0:0:0:0:0:0:1]"),
        ("fe80::1%eth0", "[fe80:0:0:0:0:0:0:1]"),
    ],
)
def test_addresses_are_written_as_java_does(host: str, shown: str) -> None:
    assert java_host(host) == shown
