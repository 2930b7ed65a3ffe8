"""etcd's services, one module each, as procedures over a Store."""
