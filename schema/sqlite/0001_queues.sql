-- shardq on SQLite. Every moment is integer microseconds since 1970-01-01 UTC.
-- 0x73687271 spells "shrq": it tells a file of shardq from the database of another application.
PRAGMA application_id = 0x73687271;

-- signal counts what became deliverable: other processes read it to wake their consumers.
CREATE TABLE [queue] (
    name     TEXT PRIMARY KEY,
    version  INTEGER NOT NULL,
    signal   INTEGER NOT NULL DEFAULT 0,
    settings BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- The shard directory. Every other table names a shard by its key.
CREATE TABLE [shard] (
    shard_key  INTEGER PRIMARY KEY,
    queue      TEXT NOT NULL,
    time_shard INTEGER NOT NULL,
    number     INTEGER NOT NULL,
    UNIQUE (queue, time_shard, number)
) STRICT;

-- Messages that were sent together. data is the last column, so that the others are read without its overflow pages.
CREATE TABLE [bundle] (
    bundle_key  INTEGER PRIMARY KEY,
    bundle_id   BLOB NOT NULL UNIQUE CHECK (length(bundle_id) = 16),
    shard_key   INTEGER NOT NULL,
    priority    INTEGER NOT NULL CHECK (priority BETWEEN 0 AND 9),
    due         INTEGER NOT NULL,
    enqueued_at INTEGER NOT NULL,
    count       INTEGER NOT NULL CHECK (count > 0),
    data        BLOB NOT NULL
) STRICT;

-- A slice of a bundle: messages first .. first + count - 1. With a token it is a timeout marker and due is the end of
-- its lease; without, it is ready from due on. Slices of one bundle never overlap. The bundle's id is here too, because it
-- decides the order among equal due times.
CREATE TABLE [entry] (
    entry_key   INTEGER PRIMARY KEY,
    shard_key   INTEGER NOT NULL,
    priority    INTEGER NOT NULL,
    due         INTEGER NOT NULL,
    bundle_key  INTEGER NOT NULL,
    bundle_id   BLOB NOT NULL,
    first       INTEGER NOT NULL CHECK (first >= 0),
    count       INTEGER NOT NULL CHECK (count > 0),
    deliveries  INTEGER NOT NULL,
    enqueued_at INTEGER NOT NULL,
    token       BLOB
) STRICT;

CREATE INDEX [entry_by_due] ON [entry] (shard_key, priority, due, bundle_id, first);
CREATE UNIQUE INDEX [entry_by_bundle] ON [entry] (bundle_id, first);
CREATE INDEX [entry_by_token] ON [entry] (token) WHERE token IS NOT NULL;

-- Slices that were acked and are kept for the queue's history.
CREATE TABLE [history] (
    history_key  INTEGER PRIMARY KEY,
    shard_key    INTEGER NOT NULL,
    processed_at INTEGER NOT NULL,
    bundle_key   INTEGER NOT NULL,
    first        INTEGER NOT NULL CHECK (first >= 0),
    count        INTEGER NOT NULL CHECK (count > 0),
    deliveries   INTEGER NOT NULL
) STRICT;

CREATE INDEX [history_by_moment] ON [history] (shard_key, processed_at);
CREATE UNIQUE INDEX [history_by_bundle] ON [history] (bundle_key, first);

-- Ids of bundles that are gone, so that a repeated append does not revive them. Keys rise with finished_at, which
-- makes the oldest the first ones.
CREATE TABLE [finished] (
    finished_key INTEGER PRIMARY KEY,
    finished_at  INTEGER NOT NULL,
    bundle_id    BLOB NOT NULL UNIQUE
) STRICT;

CREATE TABLE [dedupe] (
    queue      TEXT NOT NULL,
    key        TEXT NOT NULL,
    message_id TEXT NOT NULL,
    confirmed  INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (queue, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX [dedupe_by_expiry] ON [dedupe] (queue, expires_at);

CREATE TABLE [consumer] (
    queue      TEXT NOT NULL,
    name       TEXT NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (queue, name)
) STRICT, WITHOUT ROWID;
