"""`quoracy cell`: a whole cell on this machine."""
