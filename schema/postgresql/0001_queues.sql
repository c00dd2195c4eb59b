-- shardq on PostgreSQL. {schema} is the schema of the URL. Every moment is integer microseconds since 1970-01-01 UTC. Names are
-- compared byte by byte; groups and keys are bytea, as text cannot hold NUL. No foreign keys: each insert would lock a row.
CREATE TABLE {schema}.meta (
    one     boolean PRIMARY KEY DEFAULT true CHECK (one),
    version integer NOT NULL
);

-- The key is that of an incarnation: a queue that is created again under its name has another one.
CREATE TABLE {schema}.queue (
    queue_key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name      text COLLATE "C" NOT NULL UNIQUE,
    version   integer NOT NULL,
    settings  bytea NOT NULL
);

-- The shard directory. A shard that is listed again has another key, so nobody crosses the dead index entries of the one before.
-- low: by priority, a moment before which nothing is due, from which claims read; late counts what came below it. A row is
-- written anew each second at most, in its own page.
CREATE TABLE {schema}.shard (
    shard_key  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue_key  bigint NOT NULL,
    time_shard integer NOT NULL,
    number     integer NOT NULL,
    low        bigint[],
    late       bigint NOT NULL DEFAULT 0,
    UNIQUE (queue_key, time_shard, number)
) WITH (fillfactor = 50);

-- A slice of a bundle: messages first .. first + count - 1 of sent_count. A bundle that was not cut is one row. It is
-- processed if it has a processed_at: acked, and kept for the history. With a token it is a timeout marker, and due is the
-- end of its lease; else it is ready from due on. Slices of one bundle never overlap. sent_due is when the bundle was to be
-- delivered. Of a group, only the first slice is in the order of delivery; 2^61 is added to the due times of the others.
-- data is NULL where it is in bundle_data: above 1,900 bytes, so that a row is never moved out of line.
-- A claim changes what is indexed, so no update is HOT: pages keep room for the new versions. Vacuum comes by the number of dead rows, however
-- large the table is, and does not pause. Truncating would lock out everybody for a moment each time.
CREATE TABLE {schema}.slice (
    shard_key     bigint NOT NULL,
    due           bigint NOT NULL,
    sent_due      bigint NOT NULL,
    enqueued_at   bigint NOT NULL,
    expires_at    bigint,
    processed_at  bigint,
    place         bigint NOT NULL DEFAULT 0,
    bundle_id     uuid NOT NULL,
    token         uuid,
    first         integer NOT NULL CHECK (first >= 0),
    count         integer NOT NULL CHECK (count > 0),
    sent_count    integer NOT NULL,
    deliveries    integer NOT NULL DEFAULT 0,
    priority      smallint NOT NULL CHECK (priority BETWEEN 0 AND 9),
    unstarted     boolean NOT NULL DEFAULT false,
    message_group bytea NOT NULL DEFAULT '',
    data          bytea,
    PRIMARY KEY (shard_key, bundle_id, first)
) WITH (
    fillfactor = 70, vacuum_truncate = off, toast.vacuum_truncate = off,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000, autovacuum_vacuum_cost_delay = 0
);
ALTER TABLE {schema}.slice ALTER data SET STORAGE EXTERNAL;

-- What waits and what is held, in the order of delivery; messages are counted from it.
CREATE INDEX slice_by_due ON {schema}.slice (shard_key, priority, due, bundle_id, first) INCLUDE (count, enqueued_at)
    WHERE processed_at IS NULL;
CREATE INDEX slice_by_token ON {schema}.slice (shard_key, token) WHERE token IS NOT NULL;
CREATE INDEX slice_by_moment ON {schema}.slice (shard_key, processed_at, bundle_id, first) WHERE processed_at IS NOT NULL;
CREATE UNIQUE INDEX slice_by_group ON {schema}.slice (shard_key, message_group, place)
    WHERE message_group <> '' AND processed_at IS NULL;
-- A second slice of a group in the order of delivery is refused: messages could go out of their order.
CREATE UNIQUE INDEX slice_head ON {schema}.slice (shard_key, message_group)
    WHERE message_group <> '' AND processed_at IS NULL AND due < 2305843009213693952;

-- The data of a whole bundle, not compressed, as bodies seldom shrink.
CREATE TABLE {schema}.bundle_data (
    shard_key bigint,
    bundle_id uuid,
    data      bytea NOT NULL,
    PRIMARY KEY (shard_key, bundle_id)
) WITH (
    vacuum_truncate = off, toast.vacuum_truncate = off,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
    toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 20000
);
ALTER TABLE {schema}.bundle_data ALTER data SET STORAGE EXTERNAL;

-- Bundles that are gone, so that a repeated append does not revive them (first = -1), and messages that were moved elsewhere.
-- By periods of five minutes, in a ring of five tables: each is emptied by TRUNCATE before it is used again, which leaves
-- nothing to vacuum.
CREATE TABLE {schema}.finished (
    period    bigint NOT NULL,
    queue_key bigint NOT NULL,
    bundle_id uuid NOT NULL,
    first     integer NOT NULL DEFAULT -1,
    count     integer NOT NULL DEFAULT 0
) PARTITION BY LIST ((period % 5));
CREATE TABLE {schema}.finished_0 PARTITION OF {schema}.finished FOR VALUES IN (0);
CREATE TABLE {schema}.finished_1 PARTITION OF {schema}.finished FOR VALUES IN (1);
CREATE TABLE {schema}.finished_2 PARTITION OF {schema}.finished FOR VALUES IN (2);
CREATE TABLE {schema}.finished_3 PARTITION OF {schema}.finished FOR VALUES IN (3);
CREATE TABLE {schema}.finished_4 PARTITION OF {schema}.finished FOR VALUES IN (4);
CREATE INDEX finished_by_bundle ON {schema}.finished (bundle_id, queue_key);

-- Dedupe keys (kind 0) and unique keys (kind 1), which never expire.
CREATE TABLE {schema}.key (
    queue_key  bigint,
    kind       smallint,
    key        bytea,
    value      bytea NOT NULL,
    confirmed  boolean NOT NULL,
    expires_at bigint NOT NULL,
    PRIMARY KEY (queue_key, kind, key)
) WITH (fillfactor = 80);
CREATE INDEX key_by_expiry ON {schema}.key (queue_key, expires_at) WHERE kind = 0;

CREATE TABLE {schema}.consumer (
    queue_key  bigint,
    name       text COLLATE "C",
    expires_at bigint NOT NULL,
    PRIMARY KEY (queue_key, name)
) WITH (fillfactor = 50);

-- Rows of no shard. Queues are mostly empty, and for a table that was empty when it was vacuumed last the server plans as if it
-- always were: it takes any index, and reads all of a shard where it could look up a row. With these it knows that there
-- are shards of many rows. Sweeps change some of them, so that vacuum reads their pages.
INSERT INTO {schema}.slice (
    shard_key, due, sent_due, enqueued_at, processed_at, bundle_id, token, first, count, sent_count, priority, message_group
)
SELECT
    -1 - n / 1001, n, n, n, CASE WHEN n % 5 = 0 THEN n END, md5(n::text)::uuid,
    CASE WHEN n % 5 > 2 THEN md5('token' || n)::uuid END, 0, 1, 1, n % 10,
    CASE WHEN n % 5 = 2 THEN convert_to(n::text, 'UTF8') ELSE '' END
FROM generate_series(1, 5000) AS n;
INSERT INTO {schema}.bundle_data (shard_key, bundle_id, data)
SELECT -1 - n / 201, md5(n::text)::uuid, '' FROM generate_series(1, 1000) AS n;
ANALYZE {schema}.slice;
ANALYZE {schema}.bundle_data;
