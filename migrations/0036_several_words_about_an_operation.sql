-- One word about each operation was too few: the second one, that the money of a declined refund was returned
-- elsewhere, was refused, and the refund was made again. The release before this one refers to neither key by
-- its name.
SET LOCAL lock_timeout = '2s';

ALTER TABLE manual_resolutions
    DROP CONSTRAINT an_operation_is_resolved_by_hand_once,
    ADD CONSTRAINT a_word_about_an_operation_is_kept_once
        PRIMARY KEY USING INDEX manual_resolutions_by_word;

COMMENT ON TABLE manual_resolutions IS
    'What persons said about operations, where the processor said the same or nothing certain. Of several words about one operation, the last one by resolved_at counts.';
