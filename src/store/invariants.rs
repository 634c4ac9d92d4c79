//! What must hold of the rows of all accounts at any moment, for `charge-once check`.
//!
//! Promise: each statement only reads, takes no lock that a request waits for, and returns at most
//! [`FOUND_MAX`] + 1 violations. It reads tables whole: a person runs it, and no request waits for
//! it. Run all of them in one snapshot. Test accounts that have ended are passed over until they
//! are closed, since the sweep removes their rows in batches.
//!
//! A CHECK of the schema guards some of these as well. The statement still looks: a constraint may
//! have been dropped for a repair by hand, or a backup restored in parts.

use std::{convert::identity, time::Duration};

use sqlx::{PgConnection, error::BoxDynError, postgres::types::PgInterval};
use uuid::Uuid;

use crate::domain::ids::{
    AccountId, ChargeId, CheckoutId, EventId, OrderId, PaymentIntentId, PaymentMethodId, RefundId,
    WebhookDeliveryId,
};

/// Violations of one invariant that are returned; the statements ask for one more.
pub const FOUND_MAX: usize = 100;

/// Something that must hold at any moment.
#[derive(Debug)]
pub struct Invariant {
    /// Its name, for programs.
    pub name: &'static str,
    /// What holds, in a sentence.
    pub promise: &'static str,
    /// Columns: account_id, id (or NULL), name (of what has no id), found.
    sql: &'static str,
    /// How the ids are shown.
    show: fn(Uuid) -> String,
}

/// A row that contradicts an invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Whose it is.
    pub account: AccountId,
    /// Its id, with the prefix that clients know, or its name: an idempotency key, a sku.
    pub object: String,
    /// What is wrong with it.
    pub found: String,
}

/// A violation of what holds, and whether there are more than [`FOUND_MAX`].
#[derive(Debug, Default)]
pub struct Violations {
    /// At most [`FOUND_MAX`].
    pub found: Vec<Violation>,
    /// Whether there are more.
    pub has_more: bool,
}

/// Makes [`INVARIANTS`] of their names, what their ids are, their promises, and their SQL, which it
/// completes: `paid_once of OrderId: "An order is paid once.": "SELECT …";`. `kept.since` is the
/// time from which events are certain to be kept: an hour less than the retention, so that a sweep
/// of this moment doesn't matter. The planner must not expect the limit to end the search early,
/// because it hardly ever does; hence `MATERIALIZED`.
macro_rules! invariants {
    ($($name:ident of $id:path: $promise:literal: $sql:expr;)+) => {
        /// All of them, in the order in which they are checked.
        pub const INVARIANTS: &[Invariant] = &[$(Invariant {
            name: stringify!($name),
            promise: $promise,
            sql: concat!(
                "WITH kept AS (
                    SELECT coalesce(now() - $1::interval + interval '1 hour', '-infinity') AS since),
                 violation (account_id, id, name, found) AS MATERIALIZED (",
                $sql,
                ")
                 SELECT account_id, id, name, found
                   FROM violation
                  WHERE NOT EXISTS (SELECT FROM accounts
                                     WHERE accounts.id = violation.account_id
                                       AND accounts.test_until <= now()
                                       AND accounts.closed_at IS NULL)
                  LIMIT 101"
            ),
            show: |id| $id(id).to_string(),
        }),+];
    };
}

/// Each new object has one event that tells of it, and each of these events has an object. The
/// events hold ids as clients see them, so they are decoded: 26 digits of five bits, the first two
/// zero. `told_once!("orders", "or", "'order.created'", "true")` is the SQL about all orders.
macro_rules! told_once {
    ($table:literal, $prefix:literal, $types:literal, $ended:literal) => {
        concat!(
            "WITH told AS MATERIALIZED (
                SELECT account_id, object_id AS shown, count(*) AS times
                  FROM events_without_secrets
                 WHERE type IN (", $types, ") AND created_at > (SELECT since FROM kept)
                 GROUP BY account_id, object_id),
             born AS MATERIALIZED (
                SELECT account_id, shown, times,
                       CASE WHEN shown ~ '^", $prefix, "_[0-7][0-9a-hjkmnp-tv-z]{25}$' THEN (
                           SELECT (lpad(to_hex(substring(bits FROM 3 FOR 64)::bit(64)::bigint), 16, '0')
                                   || lpad(to_hex(substring(bits FROM 67 FOR 64)::bit(64)::bigint), 16, '0'))::uuid
                             FROM (SELECT string_agg(
                                              (position(substr(right(shown, 26), at, 1)
                                                        IN '0123456789abcdefghjkmnpqrstvwxyz')
                                               - 1)::bit(5)::text, '' ORDER BY at)::bit(130) AS bits
                                     FROM generate_series(1, 26) AS at) AS digits)
                       END AS id
                  FROM told)
             SELECT object.account_id, object.id, NULL::text, 'no event tells that it was made'
               FROM ", $table, " AS object
               LEFT JOIN born ON born.account_id = object.account_id AND born.id = object.id
              WHERE object.created_at > (SELECT since FROM kept) AND (", $ended, ")
                AND born.id IS NULL
             UNION ALL
             SELECT account_id, id, shown, format('%s events tell that it was made', times)
               FROM born
              WHERE times > 1
             UNION ALL
             SELECT born.account_id, NULL, born.shown, 'an event tells that it was made, and it does not exist'
               FROM born
               LEFT JOIN ", $table, " AS object
                 ON object.account_id = born.account_id AND object.id = born.id
              WHERE object.id IS NULL"
        )
    };
}

invariants! {
    refunds_add_up of ChargeId: "what a charge says was refunded is the sum of its refunds":
    "SELECT charge.account_id, charge.id, NULL::text,
            format('amount_refunded is %s, and its refunds are %s',
                   charge.amount_refunded, coalesce(refunds.total, 0))
       FROM charges AS charge
       LEFT JOIN (SELECT account_id, charge_id, sum(amount) AS total
                    FROM refunds
                   WHERE status <> 'failed'
                   GROUP BY account_id, charge_id) AS refunds
         ON refunds.account_id = charge.account_id AND refunds.charge_id = charge.id
      WHERE charge.amount_refunded <> coalesce(refunds.total, 0)";

    charges_within_bounds of ChargeId:
        "no charge has captured more than its amount, or refunded more than it captured":
    "SELECT account_id, id, NULL::text,
            format('status %s, amount %s, captured %s, refunded %s',
                   status, amount, amount_captured, amount_refunded)
       FROM charges
      WHERE amount_captured NOT BETWEEN 0 AND amount
         OR amount_refunded
            NOT BETWEEN 0 AND CASE WHEN released THEN amount ELSE amount_captured END
         OR (status <> 'succeeded' AND (amount_captured > 0 OR amount_refunded > 0))";

    refunds_in_the_currency_of_their_charge of RefundId: "a refund has the currency of its charge":
    "SELECT refund.account_id, refund.id, NULL::text,
            format('its currency is %s, and that of its charge is %s',
                   refund.currency, charge.currency)
       FROM refunds AS refund
       JOIN charges AS charge
         ON charge.account_id = refund.account_id AND charge.id = refund.charge_id
      WHERE refund.currency <> charge.currency";

    orders_paid_in_full of OrderId:
        "a paid order has a succeeded charge of its total, which names the order":
    "SELECT orders.account_id, orders.id, NULL::text,
            format('its total is %s %s, and its charge is %s: %s %s',
                   orders.amount, orders.currency, charge.status, charge.amount,
                   charge.currency)
       FROM orders
       JOIN charges AS charge
         ON charge.account_id = orders.account_id AND charge.id = orders.charge_id
      WHERE charge.amount <> orders.amount OR charge.currency <> orders.currency
         OR charge.status <> 'succeeded' OR charge.order_id IS DISTINCT FROM orders.id";

    orders_charged_once of OrderId: "an order has at most one charge that took money":
    "SELECT account_id, order_id, NULL::text, format('%s of its charges succeeded', count(*))
       FROM charges
      WHERE status = 'succeeded' AND order_id IS NOT NULL
      GROUP BY account_id, order_id
     HAVING count(*) > 1";

    charges_pay_their_order of ChargeId:
        "a charge that took money for an order, and did not give it back, has paid it":
    "SELECT charge.account_id, charge.id, NULL::text,
            format('the order is %s, and another charge or none has paid it', orders.status)
       FROM charges AS charge
       JOIN orders ON orders.account_id = charge.account_id AND orders.id = charge.order_id
      WHERE charge.status = 'succeeded' AND NOT charge.released
        AND (charge.amount_refunded < charge.amount_captured OR NOT charge.captured)
        AND orders.charge_id IS DISTINCT FROM charge.id
        AND NOT EXISTS (SELECT FROM checkouts
                         WHERE checkouts.account_id = orders.account_id
                           AND checkouts.order_id = orders.id
                           AND checkouts.status = 'in_progress')";

    // While a processor is asked to release the money, the charge is released already.
    intents_show_their_money of PaymentIntentId:
        "an intent shows the money that its one charge has promised, taken or released":
    "SELECT intent.account_id, intent.id, NULL::text,
            format('status %s, capturable %s, received %s; its charge: %s, captured %s, released %s',
                   intent.status, intent.amount_capturable, intent.amount_received,
                   charge.status, charge.amount_captured, charge.released)
       FROM payment_intents AS intent
       JOIN charges AS charge
         ON charge.account_id = intent.account_id AND charge.id = intent.charge_id
       LEFT JOIN operations AS operation
         ON operation.account_id = charge.account_id AND operation.charge_id = charge.id
        AND operation.completed_at IS NULL
      WHERE charge.payment_intent_id IS DISTINCT FROM intent.id
         OR charge.status <> 'succeeded' OR charge.amount <> intent.amount
         OR charge.currency <> intent.currency
         OR charge.amount_captured <> intent.amount_received
         OR (intent.status = 'requires_capture' AND charge.released
             AND operation.verb IS DISTINCT FROM 'cancel_intent')
         OR (intent.status = 'succeeded' AND charge.released)
         OR (intent.status = 'canceled' AND NOT charge.released)";

    charges_pay_their_intent of ChargeId:
        "a charge of an intent that has promised or taken money is the one that the intent names":
    "SELECT charge.account_id, charge.id, NULL::text,
            format('the intent is %s, and names another charge or none', intent.status)
       FROM charges AS charge
       JOIN payment_intents AS intent
         ON intent.account_id = charge.account_id AND intent.id = charge.payment_intent_id
      WHERE charge.status = 'succeeded' AND intent.charge_id IS DISTINCT FROM charge.id";

    processing_intents_in_flight of PaymentIntentId:
        "a processing intent has a pending charge, and an operation that waits for its answer":
    "SELECT intent.account_id, intent.id, NULL::text,
            'it is processing, and no operation waits for the answer about a pending charge'
       FROM payment_intents AS intent
       LEFT JOIN charges AS charge
         ON charge.account_id = intent.account_id AND charge.id = intent.latest_charge_id
        AND charge.status = 'pending'
       LEFT JOIN operations AS operation
         ON operation.account_id = charge.account_id AND operation.charge_id = charge.id
        AND operation.completed_at IS NULL
      WHERE intent.status = 'processing' AND operation.id IS NULL";

    methods_pay_once_or_for_one_customer of PaymentMethodId:
        "a payment method pays once, or only for the customer that it belongs to, and is used up when it paid for none":
    "SELECT method.account_id, method.id, NULL::text,
            format('%s of its charges are pending, %s succeeded, and %s of both are a customer''s',
                   paid.pending, paid.succeeded, paid.of_customers)
       FROM payment_methods AS method
       JOIN (SELECT charge.account_id, charge.payment_method_id,
                    count(*) FILTER (WHERE charge.status = 'pending') AS pending,
                    count(*) FILTER (WHERE charge.status = 'succeeded') AS succeeded,
                    count(intent.customer_id) AS of_customers,
                    min(intent.customer_id::text) AS one, max(intent.customer_id::text) AS other
               FROM charges AS charge
               JOIN payment_intents AS intent
                 ON intent.account_id = charge.account_id
                AND intent.id = charge.payment_intent_id
              WHERE charge.status IN ('pending', 'succeeded')
              GROUP BY charge.account_id, charge.payment_method_id) AS paid
         ON paid.account_id = method.account_id AND paid.payment_method_id = method.id
      WHERE CASE
            WHEN method.customer_id IS NULL AND method.detached_at IS NULL
            THEN paid.pending + paid.succeeded > 1
                 OR (paid.succeeded > 0 AND method.used_up_at IS NULL)
            ELSE paid.of_customers < paid.pending + paid.succeeded
                 OR paid.one <> paid.other OR paid.one <> method.customer_id::text
            END";

    checkouts_all_or_nothing of CheckoutId:
        "a completed checkout has paid its order, and a canceled one has kept no money":
    "SELECT checkout.account_id, checkout.id, NULL::text,
            format('it is completed, and its order is %s',
                   coalesce(orders.status, 'missing'))
       FROM checkouts AS checkout
       LEFT JOIN orders
         ON orders.account_id = checkout.account_id AND orders.id = checkout.order_id
      WHERE checkout.status = 'completed'
        AND (orders.id IS NULL OR orders.status NOT IN ('paid', 'refunded'))
     UNION ALL
     SELECT checkout.account_id, checkout.id, NULL::text,
            format('it is canceled, and a charge of its order has kept %s',
                   charge.amount - charge.amount_refunded)
       FROM checkouts AS checkout
       JOIN charges AS charge ON charge.account_id = checkout.account_id
                             AND charge.order_id = checkout.order_id
      WHERE checkout.status = 'canceled' AND charge.status = 'succeeded'
        AND NOT charge.released
        AND (charge.amount_refunded < charge.amount_captured OR NOT charge.captured)";

    stock_never_negative of identity: "no level of inventory is below zero":
    "SELECT account_id, NULL::uuid, sku, format('its level is %s', quantity)
       FROM inventory
      WHERE quantity < 0";

    // Grouped by bytes, so that it doesn't matter how an index sorts them.
    natural_keys_name_one_object of OrderId:
        "a client_order_id belongs to one order, and a name to one account":
    "SELECT account_id, unnest(array_agg(id)), NULL::text,
            format('its client_order_id names %s orders', count(*))
       FROM orders
      WHERE client_order_id IS NOT NULL
      GROUP BY account_id, convert_to(client_order_id, 'UTF8')
     HAVING count(*) > 1
     UNION ALL
     SELECT unnest(array_agg(id)), NULL, min(name), format('it names %s accounts', count(*))
       FROM accounts
      GROUP BY convert_to(name, 'UTF8')
     HAVING count(*) > 1";

    // A checkout whose refund was refused asks for another one, an hour later. The deletion of
    // a customer detaches all payment methods.
    one_change_per_execution of EventId:
        "a request makes each kind of change once; it may have several refunds fail and several payment methods detached, each once":
    "SELECT account_id, (array_agg(id ORDER BY id))[1], NULL::text,
            format('%s made %s events %s under the key %s', request_id, count(*), type,
                   idempotency_key)
       FROM events_without_secrets
      GROUP BY account_id, idempotency_key, request_id, type,
               CASE WHEN type IN ('refund.failed', 'payment_method.detached')
                    THEN object_id END
     HAVING count(*) > 1";

    versions_tell_changes_apart of identity:
        "each event about an object tells of a version of its own":
    "SELECT account_id, NULL::uuid, object_id,
            format('%s events tell of its version %s', count(*), object_version)
       FROM events_without_secrets AS event
       JOIN events USING (account_id, id)
      WHERE object_version IS NOT NULL
      GROUP BY account_id, object_id, object_version
     HAVING count(*) > 1";

    // A key has two spellings where replies are sealed, and each request may have used another one.
    one_execution_per_key of identity:
        "while a key's record lives, only the request that it names has changed anything":
    "SELECT DISTINCT record.account_id, NULL::uuid, record.key,
            format('its record names %s, and %s has changed something as well',
                   record.request_id, event.request_id)
       FROM (SELECT account_id, key, request_id, created_at, expires_at, status,
                    CASE WHEN key LIKE ',sealed.%' THEN decode(substr(key, 9), 'hex')
                         ELSE sha256(convert_to(account_id::text || ':' || key, 'UTF8')) END AS hash
               FROM idempotency_keys) AS record
       JOIN (SELECT account_id, request_id, created_at,
                    CASE WHEN idempotency_key LIKE ',sealed.%'
                         THEN decode(substr(idempotency_key, 9), 'hex')
                         ELSE sha256(convert_to(account_id::text || ':' || idempotency_key, 'UTF8'))
                    END AS hash
               FROM events) AS event
         ON event.account_id = record.account_id AND event.hash = record.hash
      WHERE event.created_at >= record.created_at
        AND (record.status IS NULL OR event.created_at < record.expires_at)
        AND event.request_id <> record.request_id";

    answers_left_their_change of identity:
        "if a stored reply reports a charge, a refund or a new intent, its request has written the event":
    "SELECT record.account_id, NULL::uuid, record.key,
            format('%s was answered %s, and no event of it exists', record.request_id,
                   record.status)
       FROM idempotency_keys AS record
       LEFT JOIN events AS event ON event.account_id = record.account_id
                                AND event.idempotency_key = record.key
                                AND event.request_id = record.request_id
      WHERE record.status BETWEEN 200 AND 299 AND record.method = 'POST'
        AND record.path ~ '^(/v1)?/(charges|refunds|payment_intents)$'
        AND record.created_at > (SELECT since FROM kept)
        AND event.id IS NULL";

    charges_told_once of ChargeId:
        "each charge that succeeded or failed has exactly one event that says so":
        told_once!("charges", "ch", "'charge.succeeded', 'charge.failed'",
                   "object.status <> 'pending'");

    refunds_told_once of RefundId: "each refund that was made has exactly one event that says so":
        told_once!("refunds", "re", "'refund.created'", "object.status = 'succeeded'");

    orders_told_once of OrderId: "each order has exactly one event that says that it was created":
        told_once!("orders", "or", "'order.created'", "true");

    // A new one is told of when the processor has answered.
    intents_told_once of PaymentIntentId:
        "each payment intent has exactly one event that says that it was created":
        told_once!("payment_intents", "pi", "'payment_intent.created'",
                   "object.status <> 'processing'");

    checkouts_told_once of CheckoutId:
        "each checkout that ended has exactly one event that says so":
        told_once!("checkouts", "co", "'checkout.completed', 'checkout.canceled'",
                   "object.status <> 'in_progress'");

    operations_in_flight of identity:
        "an operation without an answer has a lease, so that the reconciler asks for the answer":
    "SELECT operation.account_id, operation.id, NULL::text,
            format('%s since %s has no answer, and no lease', operation.verb,
                   operation.created_at)
       FROM operations AS operation
       LEFT JOIN idempotency_leases AS lease
         ON lease.account_id = operation.account_id AND lease.operation = operation.id
      WHERE operation.completed_at IS NULL AND lease.operation IS NULL";

    keys_in_flight of identity:
        "a key without an outcome has a lease, and a lease has a key without an outcome":
    "SELECT account_id, NULL::uuid, key,
            CASE WHEN lease.key IS NULL
                 THEN 'it has no outcome, and no lease: no process will complete it'
                 ELSE 'it has a lease, and no record without an outcome' END
       FROM (SELECT account_id, key FROM idempotency_keys WHERE status IS NULL) AS record
       FULL JOIN (SELECT account_id, key FROM idempotency_leases) AS lease
      USING (account_id, key)
      WHERE record.key IS NULL OR lease.key IS NULL";

    pending_charges_in_flight of ChargeId:
        "a pending charge has an operation that waits for its answer":
    "SELECT pending.account_id, pending.id, NULL::text,
            'it is pending, and no operation waits for its answer'
       FROM charges AS pending
       LEFT JOIN operations AS operation
         ON operation.account_id = pending.account_id AND operation.charge_id = pending.id
        AND operation.completed_at IS NULL
      WHERE pending.status = 'pending' AND operation.id IS NULL";

    pending_refunds_in_flight of RefundId:
        "a pending refund has an operation that waits for its answer":
    "SELECT pending.account_id, pending.id, NULL::text,
            'it is pending, and no operation waits for its answer'
       FROM refunds AS pending
       LEFT JOIN operations AS operation
         ON operation.account_id = pending.account_id AND operation.refund_id = pending.id
        AND operation.completed_at IS NULL
      WHERE pending.status = 'pending' AND operation.id IS NULL";

    rows_belong_to_accounts of WebhookDeliveryId:
        "every row belongs to an account that was not closed, and every delivery to an endpoint of its account":
    "SELECT owner.account_id, NULL::uuid, owner.place,
            CASE WHEN accounts.id IS NULL THEN 'no such account exists'
                 ELSE 'the test account was closed' END
       FROM (SELECT DISTINCT account_id, 'charges' AS place FROM charges
             UNION ALL SELECT DISTINCT account_id, 'orders' FROM orders
             UNION ALL SELECT DISTINCT account_id, 'payment_intents' FROM payment_intents
             UNION ALL SELECT DISTINCT account_id, 'setup_intents' FROM setup_intents
             UNION ALL SELECT DISTINCT account_id, 'payment_methods' FROM payment_methods
             UNION ALL SELECT DISTINCT account_id, 'customers' FROM customers
             UNION ALL SELECT DISTINCT account_id, 'refunds' FROM refunds
             UNION ALL SELECT DISTINCT account_id, 'events' FROM events
             UNION ALL SELECT DISTINCT account_id, 'inventory' FROM inventory
             UNION ALL SELECT DISTINCT account_id, 'checkouts' FROM checkouts) AS owner
       LEFT JOIN accounts ON accounts.id = owner.account_id
      WHERE accounts.id IS NULL OR accounts.closed_at IS NOT NULL
     UNION ALL
     SELECT delivery.account_id, delivery.id, NULL::text,
            'it goes to no endpoint of its account'
       FROM webhook_deliveries AS delivery
       LEFT JOIN webhook_endpoints AS endpoint
         ON endpoint.account_id = delivery.account_id AND endpoint.id = delivery.endpoint_id
      WHERE endpoint.id IS NULL";
}

impl Invariant {
    /// What contradicts it. `kept` is how long events are kept; `None`: for good. Takes no lock.
    ///
    /// Fails if `kept` is no time that PostgreSQL can represent.
    pub async fn violations(
        &self,
        connection: &mut PgConnection,
        kept: Option<Duration>,
    ) -> Result<Violations, sqlx::Error> {
        let kept = kept.map(PgInterval::try_from).transpose();
        let kept = kept.map_err(|error: BoxDynError| sqlx::Error::Encode(error))?;
        // Not one of sqlx's macros: they take no text that is put together.
        let rows = sqlx::query_as(self.sql).bind(kept);
        let rows: Vec<(Uuid, Option<Uuid>, Option<String>, String)> =
            rows.fetch_all(connection).await?;
        let has_more = rows.len() > FOUND_MAX;
        let found = rows.into_iter().take(FOUND_MAX);
        let found = found.map(|(account, id, name, found)| Violation {
            account: AccountId(account),
            object: id.map(self.show).or(name).unwrap_or_default(),
            found,
        });
        Ok(Violations {
            found: found.collect(),
            has_more,
        })
    }
}
