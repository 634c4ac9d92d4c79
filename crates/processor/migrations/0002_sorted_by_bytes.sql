-- Without a collation, text is sorted by the locale of the database, whose order another version of the C library
-- may change: an index then misses what it holds. Ids are sorted by their bytes.
ALTER TABLE processor.charges ALTER COLUMN charge TYPE text COLLATE "C";
ALTER TABLE processor.operations ALTER COLUMN charge TYPE text COLLATE "C";
