"""The SQLite store: queues in one file, for the threads and processes of one machine."""
