-- Of two events about a charge, the one with the greater version is newer. Rows from before were retrieved, and
-- an event of any version replaces them.
ALTER TABLE charges ADD COLUMN version bigint NOT NULL DEFAULT 0;
COMMENT ON TABLE charges IS 'The state of charges, as the newest event that arrived tells it.';
