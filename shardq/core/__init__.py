"""The engine: sending, receiving, settling, limits, sharding, large bodies, logs and what they share."""
