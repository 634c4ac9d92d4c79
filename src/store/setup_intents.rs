//! The table `setup_intents`.

use super::rows::{self, *};
use crate::domain::setup_intent::SetupIntent;

table! {
    SetupIntent by SetupIntentId in "setup_intents" as "to_json(setup_intents)";
    find();
    lock_all();
    /// Locks nothing that exists but their customers and methods, against deletion.
    insert_all(
        "account_id, id, automatic_payment_methods, client_secret, customer_id, description,
         holder_page_url, last_setup_error, metadata, payment_method_id, return_url, status,
         usage, version",
    );
    update_all(
        "cancellation_reason, customer_id, description, holder_page_url, last_setup_error,
         metadata, payment_method_id, return_url, status, version",
    );
}

/// What a list of setup intents is narrowed down to; all of it must fit.
#[derive(Debug, Default)]
pub struct SetupFilter {
    /// Those of a customer.
    pub customer: Option<CustomerId>,
    /// Those of a method.
    pub payment_method: Option<PaymentMethodId>,
}

/// One page of the account's setup intents. Takes no lock.
pub async fn list(
    connection: &mut PgConnection,
    account_id: AccountId,
    page: &Page,
    filter: SetupFilter,
) -> Result<Listed<SetupIntent>, sqlx::Error> {
    let rows = page! {
        connection, account_id, page,
        r#"SELECT to_json(setup_intents) AS "row!: Json<SetupIntent>"
             FROM setup_intents
            WHERE account_id = $1 AND id < $2 AND id > $3
              AND ($4::timestamptz IS NULL OR created_at >= $4)
              AND ($5::timestamptz IS NULL OR created_at < $5)"#,
        match (filter.payment_method, filter.customer) {
            (None, None) => "";
            (None, Some(customer)) => "AND customer_id = $7", customer.0;
            (Some(method), customer) =>
                "AND payment_method_id = $7 AND ($8::uuid IS NULL OR customer_id = $8)",
                method.0, customer.map(|customer| customer.0);
        }
    };
    Ok(listed(page, rows))
}
