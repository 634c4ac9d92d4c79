-- An endpoint can be disabled for a while without losing its secret, its settings and the list of its
-- deliveries. The statement that writes an event makes no deliveries for a disabled endpoint. A
-- delivery that falls due while its endpoint is disabled fails, as in Stripe's API; one that falls due
-- after the endpoint is enabled again is sent.
--
-- The default is a constant, so no row is rewritten. The release before this one ignores the column:
-- during a rollout, a replica of it still delivers to an endpoint that another replica has disabled.
SET LOCAL lock_timeout = '2s';

ALTER TABLE webhook_endpoints ADD COLUMN disabled boolean NOT NULL DEFAULT false;

COMMENT ON COLUMN webhook_endpoints.disabled IS
    'Whether nothing is sent there for now. New events make no deliveries, and due ones fail.';
