-- Without a collation, text is sorted by the locale of the database, whose order another version of the C library
-- may change: the primary key would then let an event in twice. Bytes are sorted alike everywhere.
ALTER TABLE handled_events ALTER COLUMN id TYPE text COLLATE "C";
ALTER TABLE revenue ALTER COLUMN currency TYPE text COLLATE "C";
