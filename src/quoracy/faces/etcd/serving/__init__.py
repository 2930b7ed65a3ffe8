"""How the etcd face serves its procedures: gRPC over HTTP/2, the JSON gateway, health and metrics."""
