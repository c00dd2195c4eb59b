-- The first slices of groups, in the order in which claims take them: by due time, but none before the moment at which its turn
-- came, less half a second. So what is added comes behind the dead entries, which low watermarks spare, as in other shards.
-- That a group has one first slice is kept by the lock of the group, not by a unique index: each change would read all
-- dead entries of its group.
ALTER TABLE {schema}.slice ADD COLUMN turn bigint;
DROP INDEX {schema}.slice_head;
CREATE INDEX slice_head ON {schema}.slice (shard_key, priority, greatest(due, turn), bundle_id, first)
    WHERE message_group <> '' AND processed_at IS NULL AND due < 2305843009213693952;

-- Below this place nothing of the group is left. Changed under the lock of the group, so it is exact. A row is added with a higher
-- place, and the former one deleted: the last one is found without crossing dead ones.
CREATE TABLE {schema}.group_low (
    shard_key     bigint,
    message_group bytea,
    place         bigint,
    PRIMARY KEY (shard_key, message_group, place)
);
-- Rows of no shard, as in the other tables.
INSERT INTO {schema}.group_low (shard_key, message_group, place)
SELECT -1 - n / 201, convert_to(n::text, 'UTF8'), n FROM generate_series(1, 1000) AS n;
ANALYZE {schema}.slice;
ANALYZE {schema}.group_low;
