"""The policy, once for all stores: sending, receiving, settling, limits, sharding, large bodies and logs."""
