//! URLs that events may be sent to.

use std::net::IpAddr;

use url::{Host, Position, Url};

use crate::is_public;

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

/// Whether the host is `localhost` or a name below it, which mean this machine wherever they are
/// resolved (RFC 6761, section 6.3).
fn is_localhost(url: &Url) -> bool {
    let Some(Host::Domain(name)) = url.host() else {
        return false;
    };
    // One dot at its end makes a name absolute, and changes nothing else.
    let name = name.strip_suffix('.').unwrap_or(name);
    name == "localhost" || name.ends_with(".localhost")
}
