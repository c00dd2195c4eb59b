"""``shardq demo``: a year of flights through a queue, a worker killed on the way, and all of it checked."""
