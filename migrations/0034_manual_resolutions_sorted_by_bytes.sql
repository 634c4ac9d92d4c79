-- The next migration makes the words about an operation a part of the key. The text is checked against three
-- words, which are sorted by bytes like all indexed text. The table is small, and no index holds the column yet.
SET LOCAL lock_timeout = '2s';

ALTER TABLE manual_resolutions ALTER COLUMN resolution TYPE text COLLATE "C";
ANALYZE manual_resolutions (resolution);
