"""The messages of etcd's v3 interface, and of the gRPC health check, one module for each part."""
