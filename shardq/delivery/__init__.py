"""The policies above the storage port, each written once."""
