//! The table `payment_methods`.

use super::rows::{self, *};
use crate::domain::payment_method::PaymentMethod;

table! {
    PaymentMethod by PaymentMethodId in "payment_methods" as "to_json(payment_methods)";
    find();
    find_all();
    lock_all();
    /// Reads and locks those of these methods that are customers', so that no other transaction
    /// changes or detaches them until this one ends, and others share the lock. A transaction that
    /// shares the lock must not change the method: two that did would each wait for the other one.
    read as share_all(
        "WHERE customer_id IS NOT NULL ORDER BY account_id, id FOR SHARE OF payment_methods"
    );
    /// Reads those of these methods that nothing pays with any more, and that stay so. Takes no
    /// lock.
    read as ended("WHERE num_nonnulls(used_up_at, detached_at) > 0");
    /// Locks nothing that exists but their customers, against deletion.
    insert_all(
        "account_id, id, allow_redisplay, billing_details, card_brand, card_exp_month,
         card_exp_year, card_fingerprint, card_has_cvc, card_last4, card_token, customer_id,
         is_set_up, made_for_charge_id, metadata, used_up_at, version",
    );
    ///
    /// Only a detachment removes a customer, and nothing removes the other ends or makes a method
    /// less ready: `a_payment_method_has_one_fate` refuses a second end.
    update_all(
        "allow_redisplay, billing_details, card_exp_month, card_exp_year, metadata, version",
        "is_set_up" = "old.is_set_up OR new.is_set_up",
        "customer_id" = "CASE WHEN new.detached_at IS NULL
                              THEN coalesce(new.customer_id, old.customer_id) END",
        "used_up_at" = "coalesce(old.used_up_at, new.used_up_at)",
        "detached_at" = "coalesce(old.detached_at, new.detached_at)",
    );
}

/// Forgets methods that were made for charges that were never executed, after those charges and
/// their new intents are forgotten. Leaves one that another intent names: the release before, which
/// may run beside this one, lets a request name it meanwhile. Locks them.
pub async fn delete_all(
    tx: &mut PgConnection,
    rows: &[(AccountId, PaymentMethodId)],
) -> Result<(), sqlx::Error> {
    if rows.is_empty() {
        return Ok(());
    }
    sqlx::query!(
        "
        DELETE FROM payment_methods AS method
         USING UNNEST($1::uuid[], $2::uuid[]) AS gone (account_id, id)
         WHERE method.account_id = gone.account_id AND method.id = gone.id
           AND method.made_for_charge_id IS NOT NULL
           AND NOT EXISTS (SELECT FROM payment_intents AS intent
                            WHERE intent.account_id = gone.account_id
                              AND intent.payment_method_id = gone.id)
           AND NOT EXISTS (SELECT FROM setup_intents AS setup
                            WHERE setup.account_id = gone.account_id
                              AND setup.payment_method_id = gone.id)
        ",
        &column(rows, |row| row.0.0),
        &column(rows, |row| row.1.0),
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// How many methods each of these customers has. Takes no lock. Call it under the customers',
/// without which no method is attached, in a statement of its own.
pub async fn count_all(
    tx: &mut PgConnection,
    ids: &[(AccountId, CustomerId)],
) -> Result<Vec<(AccountId, CustomerId, i64)>, sqlx::Error> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let rows = sqlx::query!(
        r#"
        SELECT wanted.account_id AS "account_id!", wanted.id AS "id!",
               (SELECT count(*)
                  FROM payment_methods
                 WHERE payment_methods.account_id = wanted.account_id
                   AND payment_methods.customer_id = wanted.id) AS "methods!"
          FROM UNNEST($1::uuid[], $2::uuid[]) AS wanted (account_id, id)
        "#,
        &column(ids, |row| row.0.0),
        &column(ids, |row| row.1.0),
    )
    .fetch_all(tx)
    .await?;
    let counts = rows.into_iter();
    let counts = counts.map(|row| (AccountId(row.account_id), CustomerId(row.id), row.methods));
    Ok(counts.collect())
}

/// Detaches all methods of a customer, and returns them, the oldest first. Locks them.
pub async fn detach_all(
    tx: &mut PgConnection,
    account_id: AccountId,
    customer: CustomerId,
) -> Result<Vec<PaymentMethod>, sqlx::Error> {
    let rows = sqlx::query_scalar!(
        r#"
        UPDATE payment_methods
           SET customer_id = NULL, detached_at = now(), version = version + 1
         WHERE account_id = $1 AND customer_id = $2
        RETURNING to_json(payment_methods) AS "row!: Json<PaymentMethod>"
        "#,
        account_id.0,
        customer.0,
    )
    .fetch_all(tx)
    .await?;
    let mut methods: Vec<PaymentMethod> = rows.into_iter().map(|row| row.0).collect();
    methods.sort_unstable_by_key(|method| method.id);
    Ok(methods)
}

/// One page of a customer's methods. Takes no lock.
pub async fn list(
    connection: &mut PgConnection,
    account_id: AccountId,
    page: &Page,
    customer: CustomerId,
) -> Result<Listed<PaymentMethod>, sqlx::Error> {
    let rows = page! {
        connection, account_id, page,
        r#"SELECT to_json(payment_methods) AS "row!: Json<PaymentMethod>"
             FROM payment_methods
            WHERE account_id = $1 AND id < $2 AND id > $3
              AND ($4::timestamptz IS NULL OR created_at >= $4)
              AND ($5::timestamptz IS NULL OR created_at < $5)"#,
        match customer {
            customer => "AND customer_id = $7", customer.0;
        }
    };
    Ok(listed(page, rows))
}
