"""What `/metrics` says: etcd's names where the meaning is etcd's, `quoracy_...` for the rest.

Invariants
    * Counting a call costs a dictionary lookup and an addition; everything else is done when asked.
    * The number of series is bounded: calls are counted by methods that exist, never by what a client
      made up.
    * Nothing is shared between two servers in one process: each has a registry of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from quoracy.faces.etcd.methods import Method, Unary
from quoracy.faces.etcd.services.member import CLUSTER_VERSION, ETCD_VERSION
from quoracy.faces.etcd.serving.calls import CallCounts
from quoracy.store.model import Alarm, ClusterHealth, StoreStatus
from quoracy.wire.grpc import StatusCode

__all__ = ["Metrics"]

# The names Go's gRPC gives the codes: dashboards for etcd ask for them.
_CODE_NAMES = {
    StatusCode.OK: "OK",
    StatusCode.CANCELLED: "Canceled",
    StatusCode.UNKNOWN: "Unknown",
    StatusCode.INVALID_ARGUMENT: "InvalidArgument",
    StatusCode.DEADLINE_EXCEEDED: "DeadlineExceeded",
    StatusCode.NOT_FOUND: "NotFound",
    StatusCode.ALREADY_EXISTS: "AlreadyExists",
    StatusCode.PERMISSION_DENIED: "PermissionDenied",
    StatusCode.RESOURCE_EXHAUSTED: "ResourceExhausted",
    StatusCode.FAILED_PRECONDITION: "FailedPrecondition",
    StatusCode.ABORTED: "Aborted",
    StatusCode.OUT_OF_RANGE: "OutOfRange",
    StatusCode.UNIMPLEMENTED: "Unimplemented",
    StatusCode.INTERNAL: "Internal",
    StatusCode.UNAVAILABLE: "Unavailable",
    StatusCode.DATA_LOSS: "DataLoss",
    StatusCode.UNAUTHENTICATED: "Unauthenticated",
}


class Metrics:
    """One server's metrics, ready to be scraped."""

    def __init__(self, methods: Iterable[Method], counts: CallCounts) -> None:
        self._store = _StoreCollector()
        self._registry = CollectorRegistry()
        self._registry.register(_CallCollector(tuple(methods), counts))
        self._registry.register(self._store)
        ProcessCollector(registry=self._registry)

    def expose(
        self, status: StoreStatus | None, cluster: ClusterHealth | None, accept: str
    ) -> tuple[bytes, str]:
        """The text and its content type.

        `status` is None when the store could not say, `cluster` when it stands on none.
        """
        self._store.status, self._store.cluster = status, cluster
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type


class _CallCollector(Collector):
    def __init__(self, methods: tuple[Method, ...], counts: CallCounts) -> None:
        self._methods, self._counts = methods, counts

    def collect(self) -> Iterator[Metric]:
        labels = ["grpc_type", "grpc_service", "grpc_method"]
        started = CounterMetricFamily("grpc_server_started", "RPCs begun on the server.", labels=labels)
        handled = CounterMetricFamily(
            "grpc_server_handled",
            "RPCs completed on the server, whatever the outcome.",
            labels=[*labels, "grpc_code"],
        )
        for method in self._methods:
            begun, ended = self._counts.of(method.path)
            _, service, name = method.path.split("/")
            values = [_grpc_type(method), service, name]
            started.add_metric(values, begun)
            for code, count in ended.items():
                handled.add_metric([*values, _CODE_NAMES[code]], count)
        yield started
        yield handled


def _grpc_type(method: Method) -> str:
    if isinstance(method, Unary):
        return "unary"
    return "bidi_stream" if method.client_streams else "server_stream"


class _StoreCollector(Collector):
    """The store, as its status last was."""

    status: StoreStatus | None = None
    cluster: ClusterHealth | None = None

    def collect(self) -> Iterator[Metric]:
        yield _labelled("etcd_server_version", "The etcd spoken.", "server_version", ETCD_VERSION)
        minor = CLUSTER_VERSION.rpartition(".")[0]
        yield _labelled("etcd_cluster_version", "The cluster's version.", "cluster_version", minor)
        status, cluster = self.status, self.cluster
        # A store without a status serves no client: to a dashboard, there is no leader.
        present = status is not None if cluster is None else cluster.is_serving
        leads = present and (cluster is None or cluster.role == "leader")
        yield GaugeMetricFamily("etcd_server_has_leader", "Whether requests are served.", int(present))
        yield GaugeMetricFamily("etcd_server_is_leader", "Whether its member leads.", int(leads))
        if cluster is not None:
            yield from _cluster_metrics(cluster)
        if status is None:
            return
        for name, text, value in _gauges(status):
            yield GaugeMetricFamily(name, text, value)
        yield _labelled("quoracy_store_engine", "What keeps the data.", "engine", status.engine)
        alarms = GaugeMetricFamily("quoracy_store_alarm", "1 while the alarm is on.", labels=["alarm"])
        for alarm in Alarm:
            alarms.add_metric([alarm.name.lower()], int(alarm in status.alarms))
        yield alarms


def _cluster_metrics(cluster: ClusterHealth) -> Iterator[Metric]:
    """How the cluster is that the store stands on.  Series: one for each member, and three."""
    yield GaugeMetricFamily(
        "quoracy_cluster_serving",
        "1 while writes and linearizable reads are taken.",
        int(cluster.is_serving),
    )
    yield GaugeMetricFamily(
        "quoracy_cluster_lag_revisions",
        "Revisions the cluster is known to have and this node has not.",
        cluster.lag,
    )
    yield GaugeMetricFamily(
        "quoracy_cluster_stale_seconds",
        "How long it is not known whether this node has everything.",
        cluster.stale_s,
    )
    members = GaugeMetricFamily(
        "quoracy_cluster_members",
        "1 for a member that answers, 0 for one that does not.",
        labels=["name", "role", "version"],
    )
    for member in cluster.members:
        role = "leader" if member.is_leader else "follower"
        members.add_metric([member.name, role, member.version], int(not member.error))
    yield members


def _gauges(status: StoreStatus) -> tuple[tuple[str, str, int], ...]:
    return (
        ("etcd_mvcc_db_total_size_in_bytes", "Bytes the data take.", status.size_bytes),
        ("etcd_server_quota_backend_bytes", "Bytes the data may take.", status.size_bytes_max),
        ("etcd_debugging_mvcc_keys_total", "Keys there are.", status.keys_count),
        ("etcd_debugging_mvcc_watcher_total", "Watches there are.", status.watchers_count),
        ("etcd_debugging_mvcc_current_revision", "The newest revision.", status.revision),
        ("etcd_debugging_mvcc_compact_revision", "The oldest kept.", status.compact_revision),
        ("quoracy_store_revision", "The newest revision.", status.revision),
        ("quoracy_store_compact_revision", "The oldest kept; 0 for all.", status.compact_revision),
        ("quoracy_store_keys", "Keys there are.", status.keys_count),
        ("quoracy_store_leases", "Leases there are.", status.leases_count),
        ("quoracy_store_watchers", "Watches there are.", status.watchers_count),
        ("quoracy_store_size_bytes", "Bytes the data take.", status.size_bytes),
        ("quoracy_store_size_bytes_max", "Bytes the data may take.", status.size_bytes_max),
    )


def _labelled(name: str, text: str, label: str, value: str) -> Metric:
    gauge = GaugeMetricFamily(name, text, labels=[label])
    gauge.add_metric([value], 1)
    return gauge
