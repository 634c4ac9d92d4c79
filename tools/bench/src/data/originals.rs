//! Two real charges, one approved and one declined: what the rows of a big database are copied
//! from.
//!
//! Promise: the stored replies and events of a big database are the program's own, because they are
//! cut from real ones. A change of their format needs no change here.

use std::net::SocketAddr;

use anyhow::{Context, ensure};
use sqlx::{FromRow, PgConnection, Row};
use type_safe_id::{DynamicType, TypeSafeId};
use uuid::Uuid;

use super::shape::{self, Shape};
use crate::load;

/// Values that stand nowhere else in a reply, so that they can be found in it.
const MARKED_AMOUNT: u64 = 87_654_321;
const MARKED_CUSTOMER: &str = "cus_marked";
const MARKED_ORDER: &str = "ord-marked";

/// A text that was cut wherever one of some values stood.
#[derive(Debug)]
pub(crate) struct Template {
    /// What is in front of each value, and which one that is.
    pieces: Vec<(String, usize)>,
    end: String,
}

impl Template {
    pub(crate) fn cut(text: &str, values: &[&str]) -> Self {
        let mut pieces = Vec::new();
        let mut rest = text;
        loop {
            let next = values.iter().enumerate().filter_map(|(which, value)| {
                let (before, after) = rest.split_once(value)?;
                Some((before, after, which))
            });
            let Some((before, after, which)) = next.min_by_key(|(before, ..)| before.len()) else {
                let end = rest.to_owned();
                return Self { pieces, end };
            };
            pieces.push((before.to_owned(), which));
            rest = after;
        }
    }

    pub(crate) fn fill(&self, values: &[String]) -> String {
        let mut text = String::new();
        for (before, which) in &self.pieces {
            text.push_str(before);
            text.push_str(values.get(*which).map_or("", String::as_str));
        }
        text.push_str(&self.end);
        text
    }
}

/// The rows of one charge.
#[derive(Debug)]
pub(crate) struct Original {
    pub(crate) status: i16,
    pub(crate) headers: Template,
    pub(crate) body: Template,
    pub(crate) event_object: Template,
    pub(crate) same: Same,
}

/// The columns that every copy has like the original.
#[derive(Debug, FromRow)]
pub(crate) struct Same {
    pub(crate) fingerprint_version: i16,
    #[sqlx(rename = "type")]
    pub(crate) event_type: String,
    pub(crate) captured: bool,
    pub(crate) charge_status: String,
    pub(crate) card_brand: String,
    pub(crate) card_last4: String,
    pub(crate) card_exp_month: i16,
    pub(crate) card_exp_year: i16,
    pub(crate) failure_code: Option<String>,
    pub(crate) decline_code: Option<String>,
    pub(crate) failure_message: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Originals {
    pub(crate) approved: Original,
    pub(crate) declined: Original,
}

impl Originals {
    /// Makes two charges at the service and reads what it stored.
    pub(crate) async fn make(
        shape: &Shape,
        service: SocketAddr,
        connection: &mut PgConnection,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            approved: make(shape, service, connection, false).await?,
            declined: make(shape, service, connection, true).await?,
        })
    }

    pub(crate) fn of(&self, is_declined: bool) -> &Original {
        match is_declined {
            true => &self.declined,
            false => &self.approved,
        }
    }
}

async fn make(
    shape: &Shape,
    service: SocketAddr,
    connection: &mut PgConnection,
    is_declined: bool,
) -> anyhow::Result<Original> {
    let body = shape::body(MARKED_AMOUNT, MARKED_CUSTOMER, MARKED_ORDER, is_declined);
    let key = Uuid::new_v4().to_string();
    let call = load::Call {
        api_key: shape::api_key(0),
        body: body.clone().into_bytes(),
        status: if is_declined { 402 } else { 201 },
        ..shape.create(0, key.clone())
    };
    load::send_one(service, &call).await?;
    let stored = sqlx::query(
        "SELECT fingerprint_version, fingerprint, path, headers::text AS headers,
                convert_from(body, 'UTF8') AS body, resource_id, type, object::text AS object, charges.*,
                charges.status AS charge_status, extract(epoch FROM charges.created_at)::bigint AS created
           FROM idempotency_keys AS record
           JOIN events ON events.idempotency_key = record.key
           JOIN charges ON charges.account_id = record.account_id
                       AND charges.created_at = record.created_at
          WHERE record.key = $1",
    )
    .bind(&key)
    .fetch_one(connection)
    .await
    .context("the charge that was just made can't be read")?;
    let text = |column| stored.try_get::<String, _>(column);
    let fingerprint: Vec<u8> = stored.try_get("fingerprint")?;
    ensure!(
        fingerprint == shape::fingerprint(body.as_bytes()).bytes() && text("path")? == shape::PATH,
        "the stored fingerprint is not that of the request: replays would be refused"
    );
    let id = id_text(stored.try_get("id")?);
    ensure!(
        text("resource_id")? == format!("ch_{id}"),
        "ids of charges look different"
    );
    let created = stored.try_get::<i64, _>("created")?.to_string();
    let amount = MARKED_AMOUNT.to_string();
    // A card's id has the characters of its charge's.
    let values: [&str; 5] = [&id, &created, &amount, MARKED_CUSTOMER, MARKED_ORDER];
    let template = |column| anyhow::Ok(Template::cut(&text(column)?, &values));
    Ok(Original {
        status: call.status.cast_signed(),
        headers: template("headers")?,
        body: template("body")?,
        event_object: template("object")?,
        same: Same::from_row(&stored)?,
    })
}

/// The 26 characters of an id as clients see it.
pub(crate) fn id_text(id: Uuid) -> String {
    // A type without a name has no underscore.
    match DynamicType::new("") {
        Ok(nameless) => TypeSafeId::from_type_and_uuid(nameless, id).to_string(),
        Err(_) => id.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_filled_with_the_values_of_another_row() {
        let text = r#"{"id":"ch_01abc","source":"card_01abc","customer":"cus_7","amount":5}"#;
        let template = Template::cut(text, &["01abc", "cus_7"]);
        let filled = template.fill(&["01xyz".to_owned(), "cus_1234".to_owned()]);
        let expected =
            r#"{"id":"ch_01xyz","source":"card_01xyz","customer":"cus_1234","amount":5}"#;
        assert_eq!(filled, expected);
        let same = template.fill(&["01abc".to_owned(), "cus_7".to_owned()]);
        assert_eq!(same, text);
    }

    #[test]
    fn a_text_without_marks_stays_as_it_is() {
        let template = Template::cut("all the same", &["x"]);
        assert_eq!(template.fill(&["1".to_owned()]), "all the same");
    }

    #[test]
    fn an_id_is_shown_in_26_characters() {
        let id = Uuid::from_u128(0x01a2_01c8_3433_7608_bc86_ff27_3854_e8e6);
        assert_eq!(id_text(id), "01m80wgd1ker4bs1qz4ww59t76");
    }
}
