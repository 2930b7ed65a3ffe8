"""The Store contract over the network: against Quoracy's own server and against a real etcd alike."""
