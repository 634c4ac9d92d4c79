-- The primary key decides which of several deliveries of an event has the effect.
CREATE TABLE handled_events (
    id text PRIMARY KEY,
    type text NOT NULL,
    handled_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE handled_events IS
    'Events whose effect is committed: the row and the effect are written in one transaction.';

-- The effect. Adding to a sum is not idempotent: a second delivery would count the money twice.
CREATE TABLE revenue (
    currency text PRIMARY KEY,
    amount bigint NOT NULL
);
COMMENT ON TABLE revenue IS 'The money that was taken, in minor units.';
