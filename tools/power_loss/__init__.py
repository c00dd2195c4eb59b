"""Power cuts: a recording of every write and sync below a store, and images of what a cut leaves of it."""
