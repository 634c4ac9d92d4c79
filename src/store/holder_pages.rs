//! The pages on which cards' holders authenticate, by their addresses.

use std::collections::HashMap;

use sqlx::PgConnection;
use uuid::Uuid;

use super::rows::column;
use crate::domain::{ids::AccountId, payment_intent::HolderPage};

/// A page that a path names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AskedPage {
    /// Whose shop it belongs to.
    pub account: AccountId,
    /// The payment intent or the setup intent.
    pub intent: Uuid,
    /// What opens it.
    pub token: String,
    /// The idempotency key of its form, which stands for the intent and the token.
    pub key: String,
}

/// Those of `asked` that an intent has, or whose form was sent. Takes no lock.
pub async fn find_all(
    connection: &mut PgConnection,
    asked: Vec<AskedPage>,
) -> Result<HashMap<AskedPage, ()>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"
        SELECT coalesce(payment.holder_page_url, setup.holder_page_url) AS url,
               (form.key IS NOT NULL) AS "was_sent!"
          FROM unnest($1::uuid[], $2::uuid[], $3::text[]) WITH ORDINALITY
               AS asked (account_id, intent_id, key, position)
          LEFT JOIN payment_intents AS payment
            ON payment.account_id = asked.account_id AND payment.id = asked.intent_id
          LEFT JOIN setup_intents AS setup
            ON setup.account_id = asked.account_id AND setup.id = asked.intent_id
          LEFT JOIN idempotency_keys AS form
            ON form.account_id = asked.account_id AND form.key = asked.key
         ORDER BY position
        "#,
        &column(&asked, |page| page.account.0),
        &column(&asked, |page| page.intent),
        &column(&asked, |page| page.key.clone()),
    )
    .fetch_all(connection)
    .await?;
    let found = asked.into_iter().zip(rows).filter_map(|(asked, row)| {
        let page = row.url.map(|url| HolderPage {
            url,
            return_url: None,
        });
        let opens = page.is_some_and(|page| page.opens_with(&asked.token));
        (opens || row.was_sent).then_some((asked, ()))
    });
    Ok(found.collect())
}
