-- Ordering keys. The messages of a group are delivered in the order of their places: place is that of the slice's first one.
-- Only the first slice of a group is in the order of delivery: due is its due time. All others are behind it: 2^61 is added
-- to their due times, by which no claim finds them. A slice without a group has the place 0.
ALTER TABLE [slice] ADD COLUMN message_group TEXT NOT NULL DEFAULT '';
ALTER TABLE [slice] ADD COLUMN place INTEGER NOT NULL DEFAULT 0;

CREATE UNIQUE INDEX [slice_by_group] ON [slice] (shard_key, message_group, place)
    WHERE message_group <> '' AND processed_at IS NULL;
