"""The engine on an etcd cluster: `opening.open_etcd`."""
