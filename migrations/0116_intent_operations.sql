SET LOCAL lock_timeout = '2s';

-- What the processor is asked for intents.
ALTER TABLE operations
    ADD COLUMN api_version       text,
    ADD COLUMN expand_paths      text[],
    ADD COLUMN payment_intent_id uuid;
COMMENT ON COLUMN operations.api_version IS
    'What the request asked for with Stripe-Version; NULL: the default of the release that completes it.';
COMMENT ON COLUMN operations.expand_paths IS
    'What the reply shows whole. NULL: what `expand` says, of a release without it.';
ALTER TABLE operations
    DROP CONSTRAINT an_operation_verb_is_known,
    DROP CONSTRAINT an_authorization_is_whole,
    DROP CONSTRAINT a_refund_operation_names_its_refund;
ALTER TABLE operations
    ADD CONSTRAINT an_operation_verb_is_known
        CHECK (verb IN ('create_charge', 'capture_charge', 'create_refund', 'pay_order',
                        'create_intent', 'confirm_intent', 'authenticate_intent', 'capture_intent',
                        'cancel_intent')) NOT VALID,
    ADD CONSTRAINT an_authorization_is_whole CHECK (
        (verb IN ('create_charge', 'pay_order', 'create_intent', 'confirm_intent',
                  'authenticate_intent')) = (card_token IS NOT NULL)
        AND (card_token IS NULL) = (currency IS NULL)
        AND (card_token IS NULL) = (capture IS NULL)) NOT VALID,
    ADD CONSTRAINT a_refund_operation_names_its_refund
        CHECK ((verb IN ('create_refund', 'cancel_intent')) = (refund_id IS NOT NULL)) NOT VALID,
    ADD CONSTRAINT an_operation_of_an_intent_names_it
        CHECK ((verb IN ('create_intent', 'confirm_intent', 'authenticate_intent', 'capture_intent',
                         'cancel_intent')) = (payment_intent_id IS NOT NULL)) NOT VALID;
