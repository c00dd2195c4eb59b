-- When the messages of a slice's bundle expire; NULL: never.
ALTER TABLE [slice] ADD COLUMN expires_at INTEGER;
