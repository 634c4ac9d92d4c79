//! The table `payment_methods`.

use std::collections::HashMap;

use charge_once_pages::{Listed, Page};
use chrono::{DateTime, Utc};
use sqlx::{PgConnection, types::Json};
use uuid::Uuid;

use super::{
    people::StoredBillingDetails,
    reads::{page_rows, reads_by_id},
    unknown::unknown,
};
use crate::domain::{
    charge::KeptCard,
    ids::{AccountId, ChargeId, CustomerId, PaymentMethodId},
    metadata::Metadata,
    payment_method::{AllowRedisplay, Attachment, NewPaymentMethod, PaymentMethod},
    test_cards,
};

struct PaymentMethodRow {
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
    metadata: Json<Metadata>,
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
                  id, allow_redisplay, billing_details AS "billing_details: Json<StoredBillingDetails>",
                  card_brand, card_exp_month, card_exp_year, card_fingerprint, card_has_cvc,
                  card_last4, card_token, created_at, customer_id,
                  detached_at IS NOT NULL AS "is_detached!", is_set_up,
                  used_up_at IS NOT NULL AS "is_used_up!",
                  metadata AS "metadata: Json<Metadata>"
                  "#
                + $after $(+ $more)*,
            $($argument),+
        )
    };
}

/// Writes a new method and returns it. Locks nothing that exists.
pub async fn insert(
    tx: &mut PgConnection,
    account_id: AccountId,
    id: PaymentMethodId,
    new: &NewPaymentMethod,
    fingerprint: &str,
) -> Result<PaymentMethod, sqlx::Error> {
    method_rows!(
        "
        INSERT INTO payment_methods
               (account_id, id, allow_redisplay, billing_details, card_brand, card_exp_month,
                card_exp_year, card_fingerprint, card_has_cvc, card_last4, card_token, metadata)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
        RETURNING",
        "",
        account_id.0,
        id.0,
        new.allow_redisplay.as_str(),
        Json(StoredBillingDetails::from(new.billing.clone())) as _,
        new.card.card.brand,
        new.card.exp_month,
        new.card.exp_year,
        fingerprint,
        new.has_cvc,
        new.card.card.last4,
        new.card.card.token(),
        Json(&new.metadata) as _,
    )
    .fetch_one(tx)
    .await?
    .try_into()
}

reads_by_id! {
    method_rows, "payment_methods", PaymentMethodId => PaymentMethod;
    /// The lock of an intent's row comes before, that of a customer's after it.
    lock;
    find_all;
}

/// Reads and locks a customer's method, so that no other transaction changes or detaches it until
/// this one ends, and others share the lock. `None` if it is no customer's. A transaction that
/// shares the lock must not change the method: two that did would each wait for the other one.
pub async fn share(
    tx: &mut PgConnection,
    account_id: AccountId,
    id: PaymentMethodId,
) -> Result<Option<PaymentMethod>, sqlx::Error> {
    method_rows!(
        "SELECT",
        "FROM payment_methods
          WHERE account_id = $1 AND id = $2 AND customer_id IS NOT NULL FOR SHARE",
        account_id.0,
        id.0,
    )
    .fetch_optional(tx)
    .await?
    .map(PaymentMethod::try_from)
    .transpose()
}

/// Writes what changes of a method, as it is in `method`: what a client may change, who may use it,
/// and whether it is set up. The caller holds its lock, so that no change in between is lost.
///
/// Only a detachment removes a customer, and nothing removes the other ends or makes a method less
/// ready. So `a_payment_method_has_one_fate` refuses the second of two ends that race without the
/// lock.
pub async fn update(
    tx: &mut PgConnection,
    account_id: AccountId,
    method: PaymentMethod,
) -> Result<PaymentMethod, sqlx::Error> {
    let fate = match method.attachment {
        Attachment::New | Attachment::To(_) => None,
        Attachment::UsedUp => Some("used_up"),
        Attachment::Detached => Some("detached"),
    };
    method_rows!(
        "
        UPDATE payment_methods
           SET allow_redisplay = $3, billing_details = $4, card_exp_month = $5,
               card_exp_year = $6, metadata = $7, is_set_up = is_set_up OR $8,
               customer_id = CASE WHEN $10::text IS DISTINCT FROM 'detached'
                                  THEN coalesce($9, customer_id) END,
               used_up_at = coalesce(used_up_at, CASE WHEN $10 = 'used_up' THEN now() END),
               detached_at = coalesce(detached_at, CASE WHEN $10 = 'detached' THEN now() END)
         WHERE account_id = $1 AND id = $2
        RETURNING",
        "",
        account_id.0,
        method.id.0,
        method.allow_redisplay.as_str(),
        Json(StoredBillingDetails::from(method.billing.clone())) as _,
        method.card.exp_month,
        method.card.exp_year,
        Json(&method.metadata) as _,
        method.set_up,
        method.customer().map(|customer| customer.0),
        fate,
    )
    .fetch_one(tx)
    .await?
    .try_into()
}

/// Notes that a method is made in this transaction for a pending charge; [`forget_made_for`] undoes
/// that.
pub async fn made_for(
    tx: &mut PgConnection,
    account_id: AccountId,
    id: PaymentMethodId,
    charge: ChargeId,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "
        UPDATE payment_methods
           SET made_for_charge_id = $3
         WHERE account_id = $1 AND id = $2
        ",
        account_id.0,
        id.0,
        charge.0,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Forgets a method that was made for a charge that was never executed, after the charge and its
/// new intent are forgotten. Leaves any other method, and one that another intent names: the
/// release before, which may run beside this one, lets a request name it meanwhile. Locks it.
pub async fn forget_made_for(
    tx: &mut PgConnection,
    account_id: AccountId,
    id: PaymentMethodId,
    charge: ChargeId,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "
        DELETE FROM payment_methods AS method
         WHERE account_id = $1 AND id = $2 AND made_for_charge_id = $3
           AND NOT EXISTS (SELECT FROM payment_intents AS intent
                            WHERE intent.account_id = $1 AND intent.payment_method_id = $2)
           AND NOT EXISTS (SELECT FROM setup_intents AS setup
                            WHERE setup.account_id = $1 AND setup.payment_method_id = $2)
        ",
        account_id.0,
        id.0,
        charge.0,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// How many methods a customer has. Takes no lock: the caller holds the customer's, without which
/// no method is attached.
pub async fn count(
    connection: &mut PgConnection,
    account_id: AccountId,
    customer: CustomerId,
) -> Result<i64, sqlx::Error> {
    let row = sqlx::query!(
        r#"
        SELECT count(*) AS "count!" FROM payment_methods WHERE account_id = $1 AND customer_id = $2
        "#,
        account_id.0,
        customer.0,
    )
    .fetch_one(connection)
    .await?;
    Ok(row.count)
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
           SET customer_id = NULL, detached_at = now()
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
