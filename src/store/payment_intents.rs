//! The table `payment_intents`.

use super::rows::{self, *};
use crate::domain::payment_intent::PaymentIntent;

// What an intent was before its operation may lack columns, if an older release wrote it: they are
// the row's own. It lacks those of a page where it had none.
table! {
    PaymentIntent by PaymentIntentId in "payment_intents" as
    r#"CASE WHEN before_operation IS NULL
            THEN to_json(payment_intents)
            ELSE to_json(json_populate_record(payment_intents, json_build_object(
                     'before_operation',
                     json_populate_record(
                         json_populate_record(payment_intents,
                             '{"before_operation": null, "holder_page_url": null, "return_url": null}'),
                         before_operation))))
       END"#;
    find();
    find_all();
    lock_all();
    /// Locks nothing that exists but their customers and methods, against deletion. Their charges
    /// may come later in the transaction.
    insert_all(
        "account_id, id, amount, amount_capturable, amount_received, automatic_payment_methods,
         before_operation, capture_method, charge_id, client_secret, confirmation_method,
         currency, customer_id, details, holder_page_url, last_payment_error, latest_charge_id,
         metadata, payment_method_id, request_three_d_secure, return_url, setup_future_usage,
         status, status_before, version",
    );
    /// A charge, a cancellation, a release and money that was taken are only ever added.
    update_all(
        "amount, amount_capturable, automatic_payment_methods, before_operation,
         cancellation_reason, capture_method, currency, customer_id, details, holder_page_url,
         is_authenticated, last_payment_error, latest_charge_id, metadata, payment_method_id,
         request_three_d_secure, return_url, setup_future_usage, status, status_before, version",
        "amount_received" = "greatest(old.amount_received, new.amount_received)",
        "canceled_at" = "coalesce(old.canceled_at, new.canceled_at)",
        "charge_id" = "coalesce(old.charge_id, new.charge_id)",
        "released" = "old.released
                      OR (new.canceled_at IS NOT NULL AND new.charge_id IS NOT NULL)",
    );
    delete_all("processing");
}

/// One page of the account's intents, those of one customer if one is given. Takes no lock.
pub async fn list(
    connection: &mut PgConnection,
    account_id: AccountId,
    page: &Page,
    customer: Option<CustomerId>,
) -> Result<Listed<PaymentIntent>, sqlx::Error> {
    let rows = page! {
        connection, account_id, page,
        r#"SELECT CASE WHEN before_operation IS NULL
                       THEN to_json(payment_intents)
                       ELSE to_json(json_populate_record(payment_intents, json_build_object(
                                'before_operation',
                                json_populate_record(
                                    json_populate_record(payment_intents,
                                        '{"before_operation": null, "holder_page_url": null,
                                          "return_url": null}'),
                                    before_operation))))
                   END AS "row!: Json<PaymentIntent>"
             FROM payment_intents
            WHERE account_id = $1 AND id < $2 AND id > $3
              AND ($4::timestamptz IS NULL OR created_at >= $4)
              AND ($5::timestamptz IS NULL OR created_at < $5)"#,
        match customer {
            None => "";
            Some(customer) => "AND customer_id = $7", customer.0;
        }
    };
    Ok(listed(page, rows))
}
