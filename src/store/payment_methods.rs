//! The table `payment_methods`.

use std::collections::HashMap;

use charge_once_pages::{Listed, Page};
use chrono::{DateTime, Utc};
use serde::{Serialize, Serializer};
use sqlx::{PgConnection, types::Json};
use uuid::Uuid;

use super::{
    columns::{all_written, column},
    people::StoredBillingDetails,
    reads::{locks_by_id, page_rows, reads_all, reads_by_id},
    unknown::unknown,
    writes::{inserts_rows, json, updates_rows},
};
use crate::domain::{
    charge::KeptCard,
    ids::{AccountId, ChargeId, CustomerId, PaymentMethodId},
    metadata::Metadata,
    payment_method::{AllowRedisplay, Attachment, PaymentMethod},
    test_cards,
};

#[derive(Serialize)]
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
    #[serde(rename = "detached_at", serialize_with = "now_if")]
    is_detached: bool,
    is_set_up: bool,
    #[serde(rename = "used_up_at", serialize_with = "now_if")]
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

impl PaymentMethodRow {
    fn of(account: AccountId, method: &PaymentMethod) -> Self {
        Self {
            account_id: account.0,
            id: method.id.0,
            allow_redisplay: method.allow_redisplay.as_str().to_owned(),
            billing_details: Json(method.billing.clone().into()),
            card_brand: method.card.brand.clone(),
            card_exp_month: method.card.exp_month,
            card_exp_year: method.card.exp_year,
            card_fingerprint: method.fingerprint.clone(),
            card_has_cvc: method.has_cvc,
            card_last4: method.card.last4.clone(),
            card_token: method.test_card.token().to_owned(),
            created_at: method.created_at,
            customer_id: method.customer().map(|customer| customer.0),
            is_detached: method.attachment == Attachment::Detached,
            is_set_up: method.set_up,
            is_used_up: method.attachment == Attachment::UsedUp,
            made_for_charge_id: method.made_for.map(|charge| charge.0),
            metadata: Json(method.metadata.clone()),
            version: method.version,
        }
    }
}

/// What PostgreSQL reads as the time of its transaction, or NULL.
fn now_if<S: Serializer>(has_happened: &bool, serializer: S) -> Result<S::Ok, S::Error> {
    has_happened.then_some("now").serialize(serializer)
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

inserts_rows! {
    /// Locks nothing that exists but their customers, against deletion.
    PaymentMethodRow of PaymentMethod in "payment_methods":
    "account_id, id, allow_redisplay, billing_details, card_brand, card_exp_month, card_exp_year,
     card_fingerprint, card_has_cvc, card_last4, card_token, customer_id, is_set_up,
     made_for_charge_id, metadata, used_up_at, version",
}

reads_by_id! {
    method_rows, "payment_methods", PaymentMethodId => PaymentMethod;
    find;
    find_all;
}

locks_by_id!(method_rows, "payment_methods", PaymentMethodId => PaymentMethod);

reads_all! {
    /// Reads and locks those of these methods that are customers', so that no other transaction
    /// changes or detaches them until this one ends, and others share the lock. A transaction that
    /// shares the lock must not change the method: two that did would each wait for the other one.
    share_all: method_rows, "payment_methods", PaymentMethodId => PaymentMethod;
    "WHERE customer_id IS NOT NULL ORDER BY account_id, id FOR SHARE OF payment_methods"
}

reads_all! {
    /// Reads those of these methods that nothing pays with any more, and that stay so. Takes no
    /// lock.
    ended: method_rows, "payment_methods", PaymentMethodId => PaymentMethod;
    "WHERE num_nonnulls(used_up_at, detached_at) > 0"
}

updates_rows! {
    ///
    /// Only a detachment removes a customer, and nothing removes the other ends or makes a method
    /// less ready: `a_payment_method_has_one_fate` refuses a second end.
    PaymentMethodRow of PaymentMethod in "payment_methods":
    "allow_redisplay, billing_details, card_exp_month, card_exp_year, metadata, version",
    "is_set_up" = "old.is_set_up OR new.is_set_up",
    "customer_id" = "CASE WHEN new.detached_at IS NULL
                          THEN coalesce(new.customer_id, old.customer_id) END",
    "used_up_at" = "coalesce(old.used_up_at, new.used_up_at)",
    "detached_at" = "coalesce(old.detached_at, new.detached_at)",
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
