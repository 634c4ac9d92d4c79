//! The table `payment_methods`.

use std::collections::HashMap;

use charge_once_pages::{Listed, Page};
use chrono::{DateTime, Utc};
use sqlx::{PgConnection, types::Json};
use uuid::Uuid;

use super::{
    columns::{all_written, column},
    people::StoredBillingDetails,
    reads::{locks_by_id, page_rows, reads_by_id},
    unknown::unknown,
};
use crate::domain::{
    charge::KeptCard,
    ids::{AccountId, ChargeId, CustomerId, PaymentMethodId},
    metadata::Metadata,
    payment_method::{AllowRedisplay, Attachment, PaymentMethod},
    test_cards,
};

struct PaymentMethodRow {
    account_id: Uuid,
    id: Uuid,
    allow_redisplay: String,
    billing_details: Json<StoredBillingDetails>,
    card_brand: String,
    card_exp_month: i16,
    card_exp_year: i16,
    card_fingerprint: String,
    card_has_cvc: bool,
    card_last4: String,
    card_token: String,
    created_at: DateTime<Utc>,
    customer_id: Option<Uuid>,
    is_detached: bool,
    is_set_up: bool,
    is_used_up: bool,
    made_for_charge_id: Option<Uuid>,
    metadata: Json<Metadata>,
    version: i64,
}

impl TryFrom<PaymentMethodRow> for PaymentMethod {
    type Error = sqlx::Error;

    fn try_from(row: PaymentMethodRow) -> Result<Self, sqlx::Error> {
        let test_card = test_cards::by_stored_token(&row.card_token);
        Ok(Self {
            id: PaymentMethodId(row.id),
            attachment: match (row.customer_id, row.is_used_up, row.is_detached) {
                (Some(customer), ..) => Attachment::To(CustomerId(customer)),
                (None, true, _) => Attachment::UsedUp,
                (None, false, true) => Attachment::Detached,
                (None, false, false) => Attachment::New,
            },
            test_card: test_card.ok_or_else(|| unknown("card_token"))?,
            card: KeptCard {
                brand: row.card_brand,
                last4: row.card_last4,
                exp_month: row.card_exp_month,
                exp_year: row.card_exp_year,
            },
            fingerprint: row.card_fingerprint,
            has_cvc: row.card_has_cvc,
            set_up: row.is_set_up,
            billing: row.billing_details.0.into(),
            allow_redisplay: AllowRedisplay::parse(&row.allow_redisplay)
                .ok_or_else(|| unknown("allow_redisplay"))?,
            metadata: row.metadata.0,
            made_for: row.made_for_charge_id.map(ChargeId),
            version: row.version,
            created_at: row.created_at,
        })
    }
}

/// `query_as!` with the columns of [`PaymentMethodRow`] between the two parts of a statement.
macro_rules! method_rows {
    ($before:tt, $after:tt $(+ $more:tt)*, $($argument:expr),+ $(,)?) => {
        sqlx::query_as!(
            PaymentMethodRow,
            $before
                + r#"
                  account_id, id, allow_redisplay,
                  billing_details AS "billing_details: Json<StoredBillingDetails>", card_brand,
                  card_exp_month, card_exp_year, card_fingerprint, card_has_cvc, card_last4,
                  card_token, created_at, customer_id,
                  detached_at IS NOT NULL AS "is_detached!", is_set_up,
                  used_up_at IS NOT NULL AS "is_used_up!", made_for_charge_id, version,
                  metadata AS "metadata: Json<Metadata>"
                  "#
                + $after $(+ $more)*,
            $($argument),+
        )
    };
}

/// How a method has ended, if it has.
fn fate(method: &PaymentMethod) -> Option<&'static str> {
    match method.attachment {
        Attachment::New | Attachment::To(_) => None,
        Attachment::UsedUp => Some("used_up"),
        Attachment::Detached => Some("detached"),
    }
}

fn billing(method: &PaymentMethod) -> Json<StoredBillingDetails> {
    Json(StoredBillingDetails::from(method.billing.clone()))
}

/// Writes new methods, all of them or none. Locks nothing that exists but their customers, against
/// deletion.
pub async fn insert_all(
    tx: &mut PgConnection,
    rows: &[(AccountId, &PaymentMethod)],
) -> Result<(), sqlx::Error> {
    let written = sqlx::query!(
        "
        INSERT INTO payment_methods
               (account_id, id, allow_redisplay, billing_details, card_brand, card_exp_month,
                card_exp_year, card_fingerprint, card_has_cvc, card_last4, card_token, customer_id,
                is_set_up, made_for_charge_id, metadata, used_up_at, version)
        SELECT account_id, id, allow_redisplay, billing_details, card_brand, card_exp_month,
               card_exp_year, card_fingerprint, card_has_cvc, card_last4, card_token, customer_id,
               is_set_up, made_for_charge_id, metadata, CASE WHEN fate = 'used_up' THEN now() END,
               version
          FROM UNNEST($1::uuid[], $2::uuid[], $3::text[], $4::jsonb[], $5::text[], $6::int2[],
                      $7::int2[], $8::text[], $9::bool[], $10::text[], $11::text[], $12::uuid[],
                      $13::bool[], $14::uuid[], $15::jsonb[], $16::text[], $17::int8[])
               AS new (account_id, id, allow_redisplay, billing_details, card_brand,
                       card_exp_month, card_exp_year, card_fingerprint, card_has_cvc, card_last4,
                       card_token, customer_id, is_set_up, made_for_charge_id, metadata, fate,
                       version)
        ",
        &column(rows, |row| row.0.0),
        &column(rows, |row| row.1.id.0),
        &column(rows, |row| row.1.allow_redisplay.as_str()) as _,
        &column(rows, |row| billing(row.1)) as _,
        &column(rows, |row| &*row.1.card.brand) as _,
        &column(rows, |row| row.1.card.exp_month),
        &column(rows, |row| row.1.card.exp_year),
        &column(rows, |row| &*row.1.fingerprint) as _,
        &column(rows, |row| row.1.has_cvc),
        &column(rows, |row| &*row.1.card.last4) as _,
        &column(rows, |row| row.1.test_card.token()) as _,
        &column(rows, |row| Some(row.1.customer()?.0)) as _,
        &column(rows, |row| row.1.set_up),
        &column(rows, |row| Some(row.1.made_for?.0)) as _,
        &column(rows, |row| Json(&row.1.metadata)) as _,
        &column(rows, |row| fate(row.1)) as _,
        &column(rows, |row| row.1.version),
    )
    .execute(tx)
    .await?;
    all_written(written.rows_affected(), rows.len())
}

reads_by_id! {
    method_rows, "payment_methods", PaymentMethodId => PaymentMethod;
    find;
    find_all;
}

locks_by_id!(method_rows, "payment_methods", PaymentMethodId => PaymentMethod);

/// Reads and locks those of these methods that are customers', so that no other transaction changes
/// or detaches them until this one ends, and others share the lock. A transaction that shares the
/// lock must not change the method: two that did would each wait for the other one.
pub async fn share_all(
    tx: &mut PgConnection,
    ids: &[(AccountId, PaymentMethodId)],
) -> Result<Vec<(AccountId, PaymentMethod)>, sqlx::Error> {
    let rows = method_rows!(
        "SELECT",
        "
          FROM payment_methods
          JOIN UNNEST($1::uuid[], $2::uuid[]) AS wanted (account_id, id) USING (account_id, id)
         WHERE customer_id IS NOT NULL
         ORDER BY account_id, id
           FOR SHARE OF payment_methods",
        &column(ids, |row| row.0.0),
        &column(ids, |row| row.1.0),
    )
    .fetch_all(tx)
    .await?;
    with_accounts(rows)
}

/// Reads those of these methods that nothing pays with any more, and that stay so. Takes no lock.
pub async fn ended(
    tx: &mut PgConnection,
    ids: &[(AccountId, PaymentMethodId)],
) -> Result<Vec<(AccountId, PaymentMethod)>, sqlx::Error> {
    let rows = method_rows!(
        "SELECT",
        "
          FROM payment_methods
          JOIN UNNEST($1::uuid[], $2::uuid[]) AS wanted (account_id, id) USING (account_id, id)
         WHERE num_nonnulls(used_up_at, detached_at) > 0",
        &column(ids, |row| row.0.0),
        &column(ids, |row| row.1.0),
    )
    .fetch_all(tx)
    .await?;
    with_accounts(rows)
}

fn with_accounts(
    rows: Vec<PaymentMethodRow>,
) -> Result<Vec<(AccountId, PaymentMethod)>, sqlx::Error> {
    rows.into_iter()
        .map(|row| Ok((AccountId(row.account_id), PaymentMethod::try_from(row)?)))
        .collect()
}

/// Writes what may change of methods, each if its row still has the version that was read. Fails if
/// one has another: its lock was forgotten. Locks them.
///
/// Only a detachment removes a customer, and nothing removes the other ends or makes a method less
/// ready: `a_payment_method_has_one_fate` refuses a second end.
pub async fn update_all(
    tx: &mut PgConnection,
    rows: &[(AccountId, &PaymentMethod, i64)],
) -> Result<(), sqlx::Error> {
    let written = sqlx::query!(
        "
        UPDATE payment_methods
           SET allow_redisplay = changed.allow_redisplay, billing_details = changed.billing_details,
               card_exp_month = changed.card_exp_month, card_exp_year = changed.card_exp_year,
               metadata = changed.metadata,
               is_set_up = payment_methods.is_set_up OR changed.is_set_up,
               customer_id = CASE WHEN fate IS DISTINCT FROM 'detached'
                                  THEN coalesce(changed.customer_id, payment_methods.customer_id) END,
               used_up_at = coalesce(used_up_at, CASE WHEN fate = 'used_up' THEN now() END),
               detached_at = coalesce(detached_at, CASE WHEN fate = 'detached' THEN now() END),
               version = changed.version
          FROM UNNEST($1::uuid[], $2::uuid[], $3::int8[], $4::text[], $5::jsonb[], $6::int2[],
                      $7::int2[], $8::jsonb[], $9::bool[], $10::uuid[], $11::text[], $12::int8[])
               AS changed (account_id, id, based_on, allow_redisplay, billing_details,
                           card_exp_month, card_exp_year, metadata, is_set_up, customer_id, fate,
                           version)
         WHERE payment_methods.account_id = changed.account_id
           AND payment_methods.id = changed.id AND payment_methods.version = changed.based_on
        ",
        &column(rows, |row| row.0.0),
        &column(rows, |row| row.1.id.0),
        &column(rows, |row| row.2),
        &column(rows, |row| row.1.allow_redisplay.as_str()) as _,
        &column(rows, |row| billing(row.1)) as _,
        &column(rows, |row| row.1.card.exp_month),
        &column(rows, |row| row.1.card.exp_year),
        &column(rows, |row| Json(&row.1.metadata)) as _,
        &column(rows, |row| row.1.set_up),
        &column(rows, |row| Some(row.1.customer()?.0)) as _,
        &column(rows, |row| fate(row.1)) as _,
        &column(rows, |row| row.1.version),
    )
    .execute(tx)
    .await?;
    all_written(written.rows_affected(), rows.len())
}

/// Forgets methods that were made for charges that were never executed, after those charges and
/// their new intents are forgotten. Leaves one that another intent names: the release before, which
/// may run beside this one, lets a request name it meanwhile. Locks them.
pub async fn delete_all(
    tx: &mut PgConnection,
    rows: &[(AccountId, PaymentMethodId)],
) -> Result<(), sqlx::Error> {
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
    let rows = rows.into_iter();
    Ok(rows
        .map(|row| (AccountId(row.account_id), CustomerId(row.id), row.methods))
        .collect())
}

/// Detaches all methods of a customer, and returns them, the oldest first. Locks them.
pub async fn detach_all(
    tx: &mut PgConnection,
    account_id: AccountId,
    customer: CustomerId,
) -> Result<Vec<PaymentMethod>, sqlx::Error> {
    let rows = method_rows!(
        "
        UPDATE payment_methods
           SET customer_id = NULL, detached_at = now(), version = version + 1
         WHERE account_id = $1 AND customer_id = $2
        RETURNING",
        "",
        account_id.0,
        customer.0,
    )
    .fetch_all(tx)
    .await?;
    let mut methods: Vec<PaymentMethod> = rows
        .into_iter()
        .map(PaymentMethod::try_from)
        .collect::<Result<_, _>>()?;
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
    let rows = page_rows!(
        method_rows,
        "payment_methods",
        (connection, account_id, page),
        "AND customer_id = $7",
        customer.0,
    );
    let methods: Result<_, _> = rows.into_iter().map(PaymentMethod::try_from).collect();
    Ok(page.cut(methods?))
}
