"""Cells under faults: hosts as network namespaces, real etcd members, real nodes, real clients."""
