"""The etcd face: the v3 services over gRPC and JSON, on one port."""
