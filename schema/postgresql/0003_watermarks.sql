-- The low watermarks of a shard, in rows of their own: by priority, a moment before which nothing is due, from which claims read.
-- late counts what came below them, step how often they were raised since. Each change inserts a row with a higher key and
-- deletes the former one. So the last row is found before the dead ones, and the row of the shard, which each request
-- reads, never has a new version: beside an old snapshot a read goes through all of them.
CREATE TABLE {schema}.watermark (
    shard_key bigint,
    late      bigint,
    step      bigint,
    low       bigint[],
    PRIMARY KEY (shard_key, late, step)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
-- A transaction of an older client that has lowered them is waited for, so that what it did is copied.
LOCK TABLE {schema}.shard IN ACCESS EXCLUSIVE MODE;
INSERT INTO {schema}.watermark (shard_key, late, step, low) SELECT shard_key, late, 0, low FROM {schema}.shard;
ALTER TABLE {schema}.shard DROP COLUMN low, DROP COLUMN late, RESET (fillfactor);
ANALYZE {schema}.watermark;
-- Beside an old snapshot nearly all rows are dead. A sample then finds no live ones, and the planner plans for an empty table.
-- So these tables are analyzed after 2^31 changes only: about once in eight days at 1,000 messages a second. The planner
-- knows the number of rows from vacuum.
ANALYZE {schema}.slice;
ANALYZE {schema}.bundle_data;
ANALYZE {schema}.group_low;
ALTER TABLE {schema}.slice SET (autovacuum_analyze_threshold = 2147483647);
ALTER TABLE {schema}.bundle_data SET (autovacuum_analyze_threshold = 2147483647);
ALTER TABLE {schema}.group_low SET (autovacuum_analyze_threshold = 2147483647);
