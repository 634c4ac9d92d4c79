//! Tables with as many rows as make PostgreSQL plan like in production.
//!
//! Row `n` of every table has the id `id_of(n)` and is about rows `n` of the other tables, so that
//! one id is a good value for any parameter.

use futures_util::{StreamExt, stream};

use crate::support::prelude::*;

/// Rows of each table.
pub const ROWS: i64 = 200_000;

/// Tables that are filled at one time. A test's pool has more connections.
const SIDE_BY_SIDE: usize = 3;

/// The rows' distance in time: 200,000 of them are 23 days.
const SECONDS_APART: i64 = 10;

/// Tables that grow with the number of requests. No statement may read one of them whole.
pub const GROWING: &str = "accounts idempotency_keys charges orders refunds events \
     webhook_deliveries checkouts checkout_steps operations webhook_endpoints request_log \
     request_counts idempotency_leases idempotency_tombstones inventory manual_resolutions customers payment_methods \
     payment_intents setup_intents webhook_replies";

/// Makes the ids and times of row `n`. Nine of ten rows are the first account's, the others are
/// spread over 200 accounts.
const FUNCTIONS: &str = "
    CREATE FUNCTION at(n bigint) RETURNS timestamptz STABLE LANGUAGE sql AS
        $$ SELECT 'NOW'::timestamptz - (ROWS - n) * interval 'APART seconds' $$;
    CREATE FUNCTION id_of(n bigint) RETURNS uuid STABLE LANGUAGE sql AS $$
        SELECT (lpad(to_hex((extract(epoch FROM at(n)) * 1000)::bigint), 12, '0')
                || '7' || lpad(to_hex(n % 4096), 3, '0') || '8' || lpad(to_hex(n), 15, '0'))::uuid $$;
    CREATE FUNCTION account_of(n bigint) RETURNS uuid IMMUTABLE LANGUAGE sql AS $$
        SELECT lpad(to_hex(CASE WHEN n % 10 = 0 THEN n / 10 % 200 ELSE 1000 END), 32, '0')::uuid $$;";

/// Each row's number, and what it has in every table: calculated once, not once for each table.
const NUMBERS: &str = "
    CREATE UNLOGGED TABLE numbers AS
    SELECT n, id_of(n) AS id, account_of(n) AS account, at(n) AS made_at
      FROM generate_series(1, ROWS) AS n;";

/// What fills each table. Half of the rows are of one customer, and a few are in every rare state.
const FILLED: [&str; 23] = [
    "INSERT INTO accounts (id, name)
     SELECT DISTINCT account, 'account ' || account FROM numbers",
    // Test accounts that were closed, and one in a thousand that is still to be closed.
    "INSERT INTO accounts (id, name, test_until, closed_at)
     SELECT id, 'test account ' || n, made_at, CASE WHEN n % 1000 <> 1 THEN made_at END
       FROM numbers",
    "INSERT INTO idempotency_keys (account_id, key, fingerprint_version, fingerprint, method, path,
            request_id, label, created_at, expires_at, status, headers, body)
     SELECT account, 'key-' || n, 1, sha256('x'), 'POST', '/charges', 'req_' || n,
            CASE WHEN n % 100 = 0 THEN 'label-' || n / 1000 END, made_at, made_at + interval '20 days',
            CASE WHEN n % 20 <> 1 THEN 201 END, CASE WHEN n % 20 <> 1 THEN '[]'::jsonb END,
            CASE WHEN n % 20 <> 1 THEN 'x'::bytea END
       FROM numbers",
    "INSERT INTO idempotency_tombstones (id, request, expired_at, resource_id)
     SELECT idempotency_tombstone_id(account, 'old-' || n), n, made_at, 'ch_' || n FROM numbers",
    "INSERT INTO charges (account_id, id, amount, amount_captured, amount_refunded, currency, captured,
            status, card_brand, card_last4, card_exp_month, card_exp_year, customer, order_id, metadata,
            created_at)
     SELECT account, id, 1000, 1000, 100, 'usd', true, 'succeeded', 'visa', '4242', 12,
            2099, 'cus_' || CASE WHEN n % 2 = 0 THEN 0 ELSE n % 5000 END,
            CASE WHEN n % 4 = 0 THEN id END, '{}', made_at
       FROM numbers",
    "INSERT INTO orders (account_id, id, amount, currency, customer, client_order_id, content_hash,
            items, metadata, status, charge_id, created_at)
     SELECT account, id, 1000, 'usd',
            'cus_' || CASE WHEN n % 2 = 0 THEN 0 ELSE n % 5000 END, 'order-' || n, sha256('x'),
            '[{\"quantity\": 1}]', '{}', CASE WHEN n % 4 = 0 THEN 'paid' ELSE 'open' END,
            CASE WHEN n % 4 = 0 THEN id END, made_at
       FROM numbers",
    "INSERT INTO refunds (account_id, id, charge_id, amount, currency, status, metadata, created_at)
     SELECT account, id, id, 100, 'usd', 'succeeded', '{}', made_at
       FROM numbers",
    "INSERT INTO events (account_id, id, type, object, request_id, idempotency_key, created_at)
     SELECT account, id,
            CASE WHEN n % 1000 = 1 THEN 'charge.updated' ELSE 'charge.succeeded' END, '{}',
            'req_' || n, 'key-' || n, made_at
       FROM numbers",
    "INSERT INTO webhook_endpoints (account_id, id, url, enabled_events, metadata, secret, deleted_at,
            canceled_at)
     SELECT account, id, 'https://example.com/', '{*}', '{}',
            CASE WHEN n % 1000 = 1 THEN 'whsec_x' END, CASE WHEN n % 1000 <> 1 THEN now() END,
            CASE WHEN n % 1000 NOT IN (1, 21) THEN now() END
       FROM numbers WHERE n % 20 = 1",
    // Almost half of all is a backlog of one endpoint. A few are ready for others, some wait for a
    // retry, and the claims of some have expired.
    "INSERT INTO webhook_deliveries (account_id, id, endpoint_id, event_id, status, ready, claim,
            next_attempt_at, created_at, delivered_at)
     SELECT account, id,
            id_of(CASE WHEN n % 2 = 1 AND n % 50 <> 1 THEN ROWS / 2 + 1 ELSE n / 4000 * 4000 + 1 END),
            id, CASE WHEN n % 2 = 1 OR n % 50 = 2 THEN 'pending' ELSE 'succeeded' END,
            n % 2 = 1 AND n % 1000 <> 1, CASE WHEN n % 1000 = 1 THEN id END,
            CASE WHEN n % 2 = 1 THEN made_at WHEN n % 50 = 2 THEN at(2 * ROWS - n) END, made_at,
            CASE WHEN n % 2 = 0 AND n % 50 <> 2 THEN made_at END
       FROM numbers",
    "INSERT INTO webhook_replies (account_id, delivery_id, number, reply, created_at)
     SELECT account, id, 1, 'ok', made_at FROM numbers",
    "INSERT INTO checkouts (account_id, id, amount, currency, items, customer, metadata, card_token,
            card_exp_month, card_exp_year, status, order_id, dialect, request_id, idempotency_key,
            created_at)
     SELECT account, id, 1000, 'usd', '[{\"sku\": \"sku-1\", \"quantity\": 1}]',
            'cus_' || CASE WHEN n % 2 = 0 THEN 0 ELSE n % 5000 END, '{}', 'tok_visa', 12, 2099,
            CASE WHEN n % 5000 = 1 THEN 'in_progress' ELSE 'completed' END, id, 'ietf',
            'req_' || n, 'key-' || n, made_at
       FROM numbers",
    "INSERT INTO checkout_steps (account_id, checkout_id, position, name, state, resource)
     SELECT account, id, 1, 'create_order',
            CASE WHEN n % 5000 = 1 THEN 'pending' ELSE 'done' END, 'or_x'
       FROM numbers",
    "INSERT INTO operations (account_id, id, verb, charge_id, refund_id, amount, dialect, expand,
            request_id, idempotency_key, processor, created_at, completed_at, outcome)
     SELECT account, id, CASE WHEN n % 3 = 0 THEN 'create_refund' ELSE 'capture_charge' END,
            id, CASE WHEN n % 3 = 0 THEN id END, 1000, 'ietf', false, 'req_' || n,
            'key-' || n, 'simulation', made_at, CASE WHEN n % 5000 <> 1 THEN made_at END,
            CASE WHEN n % 5000 <> 1 THEN CASE WHEN n % 20 = 0 THEN 'declined' ELSE 'done' END END
       FROM numbers",
    // A quarter of all came with one key.
    "INSERT INTO request_log (account_id, id, method, route, path, idempotency_key, status, outcome,
            duration_us, created_at)
     SELECT account, id, 'POST', '/charges', '/charges',
            'key-' || CASE WHEN n % 4 = 1 THEN ROWS / 2 + 1 ELSE n END, 201, 'replayed', 1000, made_at
       FROM numbers",
    // None is a whole minute, since an account has each of them once.
    "INSERT INTO request_counts (account_id, minute, outcomes, durations, second_effects)
     SELECT account, made_at, '{1}', '{1}', 0 FROM numbers",
    // Every 20th key is in flight. The holders of some are dead.
    "INSERT INTO idempotency_leases (account_id, key, kind, operation, token, leased_until, recover_after,
            in_doubt)
     SELECT account, 'key-' || n, 'processor', id, id,
            CASE WHEN n % 1000 = 1 THEN made_at ELSE at(ROWS + 1000) END,
            CASE WHEN n % 1000 = 1 THEN made_at ELSE at(ROWS + 1000) END, n % 1000 = 1
       FROM numbers WHERE n % 20 = 1",
    "INSERT INTO inventory (account_id, sku, quantity, updated_at)
     SELECT account, 'sku-' || n, 20, made_at
       FROM numbers",
    "INSERT INTO manual_resolutions (account_id, operation_id, resolution, resolved_by, resolved_at,
            operation)
     SELECT account, id, 'done', 'alice', made_at, '{}'
       FROM numbers WHERE n % 4 = 0",
    // Half of all have one e-mail address, and every 20th was deleted.
    "INSERT INTO customers (account_id, id, default_payment_method_id, email, metadata, preferred_locales,
            created_at, deleted_at)
     SELECT account, id, CASE WHEN n % 10 = 1 AND n % 20 <> 11 THEN id END,
            CASE WHEN n % 2 = 0 THEN 'ann@example.com' ELSE n || '@example.com' END, '{}', '{}', made_at,
            CASE WHEN n % 20 = 11 THEN made_at END
       FROM numbers",
    // Ten for each tenth customer.
    "INSERT INTO payment_methods (account_id, id, customer_id, card_token, card_brand, card_last4,
            card_exp_month, card_exp_year, card_fingerprint, card_has_cvc, allow_redisplay,
            billing_details, metadata, created_at)
     SELECT account, id, id_of((n - 1) / 10 * 10 + 1), 'tok_visa', 'visa', '4242', 12, 2099, 'x', false,
            'unspecified', '{}', '{}', made_at
       FROM numbers",
    // None has a charge.
    "INSERT INTO payment_intents (account_id, id, amount, capture_method, client_secret,
            confirmation_method, created_at, currency, customer_id, metadata, payment_method_id,
            request_three_d_secure, status)
     SELECT account, id, 2000, 'automatic', 'pi_' || n, 'automatic', made_at, 'usd', id, '{}', id,
            'automatic', 'requires_confirmation'
       FROM numbers",
    "INSERT INTO setup_intents (account_id, id, client_secret, customer_id, metadata,
            payment_method_id, status, usage, created_at)
     SELECT account, id, 'seti_' || n, id, '{}', id, 'succeeded', 'off_session', made_at
       FROM numbers",
];

pub struct BigTables {
    pub database: TestDatabase,
    /// The account with nine of ten rows.
    pub account: Uuid,
}

impl BigTables {
    pub async fn new() -> Self {
        let database = TestDatabase::create().await;
        database.is_left_broken("no row is about anything");
        // One moment for all transactions: a row's id is made of it.
        let now: String = database.value("SELECT now()::text").await;
        let functions = FUNCTIONS.replace("NOW", &now);
        database.execute(with_numbers(&functions)).await;
        database.execute(with_numbers(NUMBERS)).await;
        // Filled side by side, by row numbers that fit each other: what refers to what need not be
        // checked. No fill waits for a connection, since a wait has an end and a fill is long.
        let fill = async |fill: &'static str| {
            let unchecked = "SET LOCAL session_replication_role = replica";
            let fill = format!("{unchecked}; {}", with_numbers(fill));
            database.execute(fill).await;
        };
        let fills = stream::iter(FILLED);
        fills.for_each_concurrent(SIDE_BY_SIDE, fill).await;
        database.execute("VACUUM (ANALYZE)").await;
        let account = database.value("SELECT account_of(1)").await;
        Self { database, account }
    }
}

fn with_numbers(sql: &str) -> String {
    sql.replace("ROWS", &ROWS.to_string())
        .replace("APART", &SECONDS_APART.to_string())
}
