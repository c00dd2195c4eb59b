"""Queues as a Spark data source, ``format("shardq")``, and jobs that are made of it."""
