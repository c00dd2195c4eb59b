"""Limits over all consumers of a store, made of permits: messages of a queue that are held by lease."""
