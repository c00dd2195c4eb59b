-- A bundle that was not cut is one row: its state, its place in the order and its data. That makes a message that is sent
-- alone cost a third of what a bundle, an entry and their indexes did.

-- A slice of a bundle: messages first .. first + count - 1 of sent_count. It is processed if it has a processed_at: acked,
-- and kept for the history. With a token it is a timeout marker, and due is the end of its lease; else it is ready from due
-- on. Slices of one bundle never overlap. sent_due is when the bundle was to be delivered. The data of the whole bundle is in
-- each of its slices if it is short; else it is stored once, under data_key. It is the last column, so that the others are
-- read without it.
CREATE TABLE [slice] (
    slice_key    INTEGER PRIMARY KEY,
    shard_key    INTEGER NOT NULL,
    bundle_id    BLOB NOT NULL CHECK (length(bundle_id) = 16),
    first        INTEGER NOT NULL CHECK (first >= 0),
    count        INTEGER NOT NULL CHECK (count > 0),
    priority     INTEGER NOT NULL CHECK (priority BETWEEN 0 AND 9),
    due          INTEGER NOT NULL,
    deliveries   INTEGER NOT NULL,
    unstarted    INTEGER NOT NULL,
    token        BLOB,
    processed_at INTEGER,
    sent_due     INTEGER NOT NULL,
    enqueued_at  INTEGER NOT NULL,
    sent_count   INTEGER NOT NULL,
    data_key     INTEGER,
    data         BLOB
) STRICT;

CREATE TABLE [bundle_data] (
    data_key INTEGER PRIMARY KEY,
    data     BLOB NOT NULL
) STRICT;

-- Ids of bundles that are gone, so that a repeated append does not revive them: by the five minutes in which they went, so
-- that the oldest are the first ones. finished_period has the periods that occur.
CREATE TABLE [finished_id] (
    period      INTEGER NOT NULL,
    bundle_id   BLOB NOT NULL,
    incarnation INTEGER NOT NULL,
    PRIMARY KEY (period, bundle_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE [finished_period] (
    period INTEGER PRIMARY KEY
) STRICT;

INSERT INTO [bundle_data] (data_key, data) SELECT bundle_key, data FROM [bundle] WHERE length(data) > 4000;

INSERT INTO [slice] (
    shard_key, bundle_id, first, count, priority, due, deliveries, unstarted, token, processed_at,
    sent_due, enqueued_at, sent_count, data_key, data
)
SELECT
    [entry].shard_key, [entry].bundle_id, [entry].first, [entry].count, [entry].priority, [entry].due, [entry].deliveries,
    [entry].unstarted, [entry].token, NULL, [bundle].due, [bundle].enqueued_at, [bundle].count,
    iif(length([bundle].data) > 4000, [bundle].bundle_key, NULL), iif(length([bundle].data) > 4000, NULL, [bundle].data)
FROM [entry] JOIN [bundle] USING (bundle_key) ORDER BY [entry].entry_key;

INSERT INTO [slice] (
    shard_key, bundle_id, first, count, priority, due, deliveries, unstarted, token, processed_at,
    sent_due, enqueued_at, sent_count, data_key, data
)
SELECT
    [history].shard_key, [bundle].bundle_id, [history].first, [history].count, [bundle].priority, [bundle].due, [history].deliveries,
    0, NULL, [history].processed_at, [bundle].due, [bundle].enqueued_at, [bundle].count,
    iif(length([bundle].data) > 4000, [bundle].bundle_key, NULL), iif(length([bundle].data) > 4000, NULL, [bundle].data)
FROM [history] JOIN [bundle] USING (bundle_key) ORDER BY [history].history_key;

INSERT INTO [finished_id] (period, bundle_id, incarnation)
SELECT finished_at / 300000000, bundle_id, incarnation FROM [finished];
INSERT INTO [finished_period] (period) SELECT DISTINCT period FROM [finished_id];

DROP TABLE [entry];
DROP TABLE [history];
DROP TABLE [bundle];
DROP TABLE [finished];

-- What waits and what is held, in the order of delivery; the last three are in it so that messages are counted from it.
CREATE INDEX [slice_by_due] ON [slice] (shard_key, priority, due, bundle_id, first, count, enqueued_at, processed_at)
    WHERE processed_at IS NULL;
CREATE UNIQUE INDEX [slice_by_bundle] ON [slice] (bundle_id, first);
CREATE INDEX [slice_by_token] ON [slice] (shard_key, token) WHERE token IS NOT NULL;
CREATE INDEX [slice_by_moment] ON [slice] (shard_key, processed_at) WHERE processed_at IS NOT NULL;
