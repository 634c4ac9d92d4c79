-- Receivers get events in any order. An object's version says which one is newer. Rows of the release
-- before have none, and are sent as they were.
SET LOCAL lock_timeout = '2s';

ALTER TABLE events ADD COLUMN object_version bigint;

COMMENT ON COLUMN events.object_version IS
    'The version of the object right after the change, greater with each; NULL of objects that have none.';
