"""One node of a cell: the etcd member of this machine, started, kept running and stopped."""
