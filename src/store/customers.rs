//! The table `customers`.

use super::rows::{self, *};
use crate::domain::customer::{Customer, CustomersWith};

table! {
    Customer by CustomerId in "customers" as "to_json(customers)";
    find();
    find_all();
    lock_all();
    /// Those of these customers that are there, also if they were deleted. Takes no lock.
    read as look_all("");
    /// Locks nothing that exists. Their default methods may come later in the transaction.
    insert_all("account_id, id, default_payment_method_id, details, email, metadata, version");
    update_all("default_payment_method_id, details, email, metadata, version");
}

/// Deletes a customer but for its id; `None` if there is none, or it was deleted before. Locks it.
pub async fn delete(
    tx: &mut PgConnection,
    account_id: AccountId,
    id: CustomerId,
) -> Result<Option<Customer>, sqlx::Error> {
    let deleted = sqlx::query_scalar!(
        r#"
        UPDATE customers
           SET deleted_at = now(), default_payment_method_id = NULL, version = version + 1
         WHERE account_id = $1 AND id = $2 AND deleted_at IS NULL
        RETURNING to_json(customers) AS "row!: Json<Customer>"
        "#,
        account_id.0,
        id.0,
    )
    .fetch_optional(tx)
    .await?;
    Ok(deleted.map(|row| row.0))
}

/// One page of the account's customers that exist, or of those that are asked for: by name, of the
/// newest 1,000 with the address. Takes no lock.
pub async fn list(
    connection: &mut PgConnection,
    account_id: AccountId,
    page: &Page,
    asked: Option<CustomersWith>,
) -> Result<Listed<Customer>, sqlx::Error> {
    let asked = asked.map(|CustomersWith { email, name }| (email, name));
    let rows = page! {
        connection, account_id, page,
        r#"SELECT to_json(customers) AS "row!: Json<Customer>"
             FROM customers
            WHERE account_id = $1 AND id < $2 AND id > $3
              AND ($4::timestamptz IS NULL OR created_at >= $4)
              AND ($5::timestamptz IS NULL OR created_at < $5)
              AND deleted_at IS NULL"#,
        match asked {
            None => "";
            Some((email, None)) => "AND email = $7", email;
            // No index has the name, so it is compared with 1,000 rows at most.
            Some((email, Some(name))) =>
                "AND email = $7 AND details->>'name' = $8
                 AND id >= coalesce((SELECT id
                                      FROM customers
                                     WHERE account_id = $1 AND email = $7 AND deleted_at IS NULL
                                     ORDER BY id DESC
                                    OFFSET 999
                                     LIMIT 1), '00000000-0000-0000-0000-000000000000')",
                email, name;
        }
    };
    Ok(listed(page, rows))
}
