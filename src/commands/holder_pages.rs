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
    draft: &Draft<'_>,
    id: impl Display,
    return_url: Option<String>,
) -> Result<HolderPage, Rejection> {
    let (account, token) = (draft.origin.account, random());
    let public_url = draft.server.public_url;
    let public_url = public_url.ok_or_else(|| lost("the address of pages"))?;
    Ok(HolderPage {
        url: format!("{public_url}/authenticate/{account}/{id}/{token}"),
        return_url,
    })
}

/// The reply to the form of a page. It leads the holder back to the shop, whose page is told of the
/// intent, by its `kind` (`payment_intent` or `setup_intent`), its id and its secret, and whether
/// the holder authenticated and the card did not decline then. The reply is stored, so every later
/// one leads to the same place.
pub(super) fn landing(
    page: Option<&HolderPage>,
    (kind, id, client_secret): (&str, String, &str),
    has_succeeded: bool,
) -> Result<Said, Rejection> {
    let mut headers = Vec::new();
    let status = match has_succeeded {
        true => SUCCEEDED,
        false => FAILED,
    };
    let page = page.ok_or_else(|| lost("an intent's page"))?;
    if let Some(return_url) = &page.return_url {
        // It was checked when the page was made.
        let mut url = Url::parse(return_url).map_err(Failure::internal)?;
        url.query_pairs_mut()
            .append_pair(kind, &id)
            .append_pair(&format!("{kind}_client_secret"), client_secret)
            .append_pair("redirect_status", status);
        headers.push(("location".to_owned(), url.into()));
    }
    Ok(Said::Reply(Reply {
        status: if headers.is_empty() { DONE } else { SEE_OTHER },
        headers,
        body: status.into(),
        resource_id: Some(id),
    }))
}

/// The reply to the form of a page that the intent doesn't wait for any more.
pub(super) fn no_longer_needed(id: impl Display) -> Said {
    Said::Reply(Reply {
        status: GONE,
        headers: Vec::new(),
        body: Vec::new(),
        resource_id: Some(id.to_string()),
    })
}

/// Why the method of an intent failed whose holder didn't authenticate.
pub(super) fn authentication_failed(code: ErrorCode, intent: &str) -> ApiError {
    let message = format!(
        "The provided PaymentMethod has failed authentication. You can provide payment_method_data or a \
         new PaymentMethod to attempt to fulfill this {intent} again."
    );
    ApiError::new(code, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(return_url: Option<&str>, has_succeeded: bool) -> (u16, Option<String>) {
        let (url, return_url) = (String::new(), return_url.map(str::to_owned));
        let page = HolderPage { url, return_url };
        let setup = ("setup_intent", "seti_1".to_owned(), "seti_1_secret_2");
        let Ok(Said::Reply(mut reply)) = landing(Some(&page), setup, has_succeeded) else {
            panic!("a page leads somewhere");
        };
        (reply.status, reply.headers.pop().map(|(_, value)| value))
    }

    #[test]
    fn a_shop_is_told_of_the_intent_behind_what_its_address_has_already() {
        let told =
            "setup_intent=seti_1&setup_intent_client_secret=seti_1_secret_2&redirect_status=";
        for (return_url, before, after) in [
            ("https://shop.example", "https://shop.example/?", ""),
            (
                "https://shop.example/done?cart=1#top",
                "https://shop.example/done?cart=1&",
                "#top",
            ),
            ("shop-app:done", "shop-app:done?", ""),
        ] {
            let expected = format!("{before}{told}succeeded{after}");
            assert_eq!(location(Some(return_url), true), (303, Some(expected)));
        }
        let (_, failed) = location(Some("https://shop.example/"), false);
        assert!(failed.unwrap().ends_with("redirect_status=failed"));
        assert_eq!(location(None, true), (200, None));
    }
}
