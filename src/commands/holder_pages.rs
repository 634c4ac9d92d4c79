//! What a card's holder gets: a page to authenticate on, and a way back to the shop.
//!
//! Promise: no page opens without its token, which is random, as the secret of an intent is.

use std::fmt::Display;

use rand::distr::{Alphanumeric, SampleString};
use url::Url;

use crate::commands::prelude::*;

/// 32 of 62 letters and digits are 190 bits.
const SECRET_CHARS: usize = 32;

/// The reply of a page that waits for nothing any more.
const GONE: u16 = 410;
/// The reply that sends the holder back to the shop.
const SEE_OTHER: u16 = 303;
/// The reply of a page that leads nowhere. Its body is [`SUCCEEDED`] or [`FAILED`].
const DONE: u16 = 200;

/// How it ended, in the words of the shop's `redirect_status`.
const SUCCEEDED: &str = "succeeded";
/// The holder did not authenticate, or the card declined then.
pub const FAILED: &str = "failed";

fn random() -> String {
    Alphanumeric.sample_string(&mut rand::rng(), SECRET_CHARS)
}

/// What a shop's pages know the intent `id` by.
pub(super) fn client_secret(id: impl Display) -> String {
    format!("{id}_secret_{}", random())
}

/// A new page, on which the holder authenticates for the intent `id`.
pub(super) fn holder_page(
    public_url: &str,
    account: AccountId,
    id: impl Display,
    return_url: Option<String>,
) -> HolderPage {
    HolderPage {
        url: format!("{public_url}/authenticate/{account}/{id}/{}", random()),
        return_url,
    }
}

/// Where a holder goes from here, as the shop's page is told.
pub(super) struct ReturnToShop {
    /// `payment_intent` or `setup_intent`.
    pub(super) kind: &'static str,
    /// The intent's id.
    pub(super) id: String,
    /// What the shop's pages know it by.
    pub(super) client_secret: String,
    /// Whether the holder authenticated, and the card did not decline then.
    pub(super) has_succeeded: bool,
}

impl ReturnToShop {
    /// The reply to the page's form. It is stored, so every later one leads to the same place.
    pub(super) fn of(self, page: &HolderPage) -> Result<Reply, Rejection> {
        let mut headers = Vec::new();
        let status = match self.has_succeeded {
            true => SUCCEEDED,
            false => FAILED,
        };
        if let Some(return_url) = &page.return_url {
            // It was checked when the page was made.
            let mut url = Url::parse(return_url).map_err(Failure::internal)?;
            url.query_pairs_mut()
                .append_pair(self.kind, &self.id)
                .append_pair(&format!("{}_client_secret", self.kind), &self.client_secret)
                .append_pair("redirect_status", status);
            headers.push(("location".to_owned(), url.into()));
        }
        Ok(Reply {
            status: if headers.is_empty() { DONE } else { SEE_OTHER },
            headers,
            body: status.into(),
            resource_id: Some(self.id),
        })
    }
}

/// The reply to the form of a page that the intent doesn't wait for any more.
pub(super) fn no_longer_needed(id: impl Display) -> Reply {
    Reply {
        status: GONE,
        headers: Vec::new(),
        body: Vec::new(),
        resource_id: Some(id.to_string()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use uuid::Uuid;

    use super::*;

    fn location(return_url: Option<&str>, has_succeeded: bool) -> (u16, Option<String>) {
        let page = HolderPage {
            url: String::new(),
            return_url: return_url.map(str::to_owned),
        };
        let landing = ReturnToShop {
            kind: "setup_intent",
            id: "seti_1".to_owned(),
            client_secret: "seti_1_secret_2".to_owned(),
            has_succeeded,
        };
        let mut reply = landing.of(&page).ok().unwrap();
        (reply.status, reply.headers.pop().map(|(_, value)| value))
    }

    #[test]
    fn a_shop_is_told_of_the_intent_behind_what_its_address_has_already() {
        let told =
            "setup_intent=seti_1&setup_intent_client_secret=seti_1_secret_2&redirect_status=";
        for (return_url, expected) in [
            (
                "https://shop.example",
                format!("https://shop.example/?{told}succeeded"),
            ),
            (
                "https://shop.example/done?cart=1#top",
                format!("https://shop.example/done?cart=1&{told}succeeded#top"),
            ),
            ("shop-app:done", format!("shop-app:done?{told}succeeded")),
        ] {
            assert_eq!(location(Some(return_url), true), (303, Some(expected)));
        }
        let (_, failed) = location(Some("https://shop.example/"), false);
        assert!(failed.unwrap().ends_with("redirect_status=failed"));
        assert_eq!(location(None, true), (200, None));
    }

    #[test]
    fn a_page_opens_with_its_own_token_alone() {
        let page = || holder_page("http://localhost", AccountId(Uuid::nil()), "seti_1", None);
        let one = page();
        let token = one.url.rsplit('/').next().unwrap();
        assert!(one.opens_with(token));
        assert!(!page().opens_with(token));
        for other in ["", "seti_1", &token[1..], &format!("{token}x")] {
            assert!(!one.opens_with(other), "{other}");
        }
    }
}
