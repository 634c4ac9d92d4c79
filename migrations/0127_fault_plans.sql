SET LOCAL lock_timeout = '2s';

-- Faults that a test account has act on requests and webhooks which don't ask for any. They are
-- counted here, so all replicas count together.
CREATE TABLE fault_plans (
    account_id   uuid        NOT NULL,
    id           uuid        NOT NULL,
    target       text        NOT NULL,
    fault        text        NOT NULL,
    seconds      bigint      NOT NULL,
    first        bigint,
    every        bigint,
    percent      bigint,
    seed         bigint      NOT NULL,
    acts_at_most bigint      NOT NULL,
    matched      bigint      NOT NULL DEFAULT 0,
    acted        bigint      NOT NULL DEFAULT 0,
    created_at   timestamptz NOT NULL DEFAULT now(),

    CONSTRAINT fault_plans_are_known_by_account_and_id PRIMARY KEY (account_id, id),
    CONSTRAINT a_fault_plan_acts_in_one_way CHECK (num_nonnulls(first, every, percent) = 1),
    CONSTRAINT a_fault_plan_acts_no_more_than_it_may CHECK (acted BETWEEN 0 AND acts_at_most)
);

COMMENT ON TABLE fault_plans IS 'Faults that test accounts have planned. Gone with the account.';
COMMENT ON COLUMN fault_plans.target IS
    '`POST /refunds`, `/refunds` or `*`: requests; `event charge.succeeded` or `event *`: webhooks.';
COMMENT ON COLUMN fault_plans.matched IS 'Requests or attempts that the plan is about, so far.';
COMMENT ON COLUMN fault_plans.acted IS 'On how many of them the fault has acted.';
