"""Measurements of a store through shardq's public interface: throughput, latency, and how costs grow."""
