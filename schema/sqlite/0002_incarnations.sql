-- A queue that is created again under its name is another incarnation; what is remembered of finished bundles belongs to one.
ALTER TABLE [queue] ADD COLUMN incarnation INTEGER NOT NULL DEFAULT 0;
ALTER TABLE [finished] ADD COLUMN incarnation INTEGER NOT NULL DEFAULT 0;

-- 1 while the delivery of a held slice is not counted among its deliveries, since nobody works on it yet.
ALTER TABLE [entry] ADD COLUMN unstarted INTEGER NOT NULL DEFAULT 0;

-- Slices that were finished here because they are stored elsewhere now: lost, not gone, to whoever held them. Keys rise with
-- moved_at, which makes the oldest the first ones.
CREATE TABLE [moved] (
    moved_key   INTEGER PRIMARY KEY,
    moved_at    INTEGER NOT NULL,
    incarnation INTEGER NOT NULL,
    bundle_id   BLOB NOT NULL,
    first       INTEGER NOT NULL,
    count       INTEGER NOT NULL
) STRICT;

CREATE INDEX [moved_by_bundle] ON [moved] (bundle_id, first);
