"""The PostgreSQL store: queues in a schema of a database."""
