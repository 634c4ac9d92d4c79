//! Where an account wants its events sent.

use std::{fmt, net::IpAddr};

use chrono::{DateTime, Utc};
use url::{Host, Position, Url};

use super::{ids::WebhookEndpointId, metadata::Metadata, public_addresses::is_public};

/// How many endpoints an account may have: each multiplies what an event costs to write.
pub const ENDPOINTS_MAX: i64 = 16;

/// Stands for every type of event, those to come included.
pub const EVERY_EVENT: &str = "*";

/// What is signed with. It shows itself only where [`Secret::reveal`] is called, so that no log
/// line can hold it by accident.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// What every secret begins with, so that scanners and people know one.
    pub const PREFIX: &'static str = "whsec_";

    /// A secret that is known already.
    pub fn of(text: String) -> Self {
        Self(text)
    }

    /// The secret itself, prefix included.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("whsec_…")
    }
}

/// A webhook endpoint that is to be made.
#[derive(Debug, Clone)]
pub struct NewWebhookEndpoint {
    /// As the client wrote it. [`check_url`] refuses text that parsing would change.
    pub url: String,
    /// [`EVERY_EVENT`], or names of [`EventType`](super::event::EventType)s.
    pub enabled_events: Vec<String>,
    /// For people.
    pub description: Option<String>,
    /// The client's own names.
    pub metadata: Metadata,
}

/// A webhook endpoint. Its secret is read where something is signed, and nowhere else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookEndpoint {
    /// Which one.
    pub id: WebhookEndpointId,
    /// Where events are sent.
    pub url: String,
    /// [`EVERY_EVENT`], or types of events.
    pub enabled_events: Vec<String>,
    /// For people.
    pub description: Option<String>,
    /// The client's own names.
    pub metadata: Metadata,
    /// Whether nothing is sent there for now.
    pub disabled: bool,
    /// When it was written, by the database's clock.
    pub created_at: DateTime<Utc>,
}

/// Why no event can be sent to a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UrlRefusal {
    /// It is no absolute URL.
    NotAbsolute,
    /// Its scheme is neither http nor https.
    Scheme,
    /// It holds a user name or a password.
    Credentials,
    /// It has a fragment.
    Fragment,
    /// It names port 0.
    PortZero,
    /// It names a private, local or reserved address, or this machine.
    NotPublic,
    /// Parsing changes the text.
    NotPlain,
}

/// Whether events may be sent to the URL `text`. With `allow_private`, it may name an address that
/// is not public.
///
/// Only what the text itself says is decided here, so a retry is decided as its first request was.
/// All other host names are resolved and checked at each attempt, because what they mean changes.
pub fn check_url(text: &str, allow_private: bool) -> Result<(), UrlRefusal> {
    let url = Url::parse(text).map_err(|_| UrlRefusal::NotAbsolute)?;
    if !["http", "https"].contains(&url.scheme()) {
        return Err(UrlRefusal::Scheme);
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(UrlRefusal::Credentials);
    }
    if url.fragment().is_some() {
        return Err(UrlRefusal::Fragment);
    }
    if url.port() == Some(0) {
        return Err(UrlRefusal::PortZero);
    }
    let is_private = literal_address(&url).is_some_and(|address| !is_public(address));
    if !allow_private && (is_private || is_localhost(&url)) {
        return Err(UrlRefusal::NotPublic);
    }
    if !is_written_plainly(text, &url) {
        return Err(UrlRefusal::NotPlain);
    }
    Ok(())
}

/// Whether the text equals the parsed URL, up to the slash of an empty path. They must be equal, so
/// that every reader sends to the same address.
fn is_written_plainly(text: &str, url: &Url) -> bool {
    if text == url.as_str() {
        return true;
    }
    let (before, after) = (&url[..Position::BeforePath], &url[Position::AfterPath..]);
    url.path() == "/" && text.strip_prefix(before) == Some(after)
}

/// The address that the URL names in place of a host name, in any of the forms that URLs have for
/// it.
pub fn literal_address(url: &Url) -> Option<IpAddr> {
    match url.host()? {
        Host::Domain(_) => None,
        Host::Ipv4(address) => Some(address.into()),
        Host::Ipv6(address) => Some(address.into()),
    }
}

/// Whether the host is `localhost` or a name below it, which mean this machine wherever they are resolved
/// (RFC 6761, section 6.3).
fn is_localhost(url: &Url) -> bool {
    let Some(Host::Domain(name)) = url.host() else {
        return false;
    };
    // One dot at its end makes a name absolute, and changes nothing else.
    let name = name.strip_suffix('.').unwrap_or(name);
    name == "localhost" || name.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_does_not_show_itself() {
        let secret = Secret::of("whsec_hidden".to_owned());
        assert!(!format!("{secret:?}").contains("hidden"));
    }
}
