//! URLs that events may be sent to.

use std::net::IpAddr;

use url::{Host, Position, Url};

use crate::is_public;

/// Why no event can be sent to a URL, in a sentence for its author.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UrlRefusal {
    /// It is no absolute URL.
    #[error("Must be an absolute URL.")]
    NotAbsolute,
    /// Its scheme is neither http nor https.
    #[error("Must begin with https:// or http://.")]
    Scheme,
    /// It holds a user name or a password.
    #[error("Must not hold a user name or a password.")]
    Credentials,
    /// It has a fragment.
    #[error("Must not have a fragment.")]
    Fragment,
    /// It names port 0.
    #[error("Must not name port 0.")]
    PortZero,
    /// It names a private, local or reserved address, or this machine.
    #[error("Must not name a private, local or reserved address, or localhost.")]
    NotPublic,
    /// Parsing changes the text.
    #[error(
        "Must be written in the form that is sent to: no space, // after the scheme, scheme and host \
         in lower case, no default port, an address or a path in its shortest usual form, and what is \
         not ASCII encoded."
    )]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_http_or_https_without_a_user_and_a_fragment() {
        for good in [
            "https://example.com/webhooks",
            "http://example.com:8080/?a=b",
            "https://1.1.1.1/",
            "https://[2606:4700::1111]/",
            // Other names are checked when something is sent.
            "http://localhost.example/",
            "http://notlocalhost/",
            "http://nowhere.invalid/",
            // The slash of an empty path may be missing.
            "https://example.com",
            "https://example.com:8443",
            "https://example.com?a=b",
            "https://example.com/a//b/?a=/&b=%20",
            "https://xn--bcher-kva.example/",
        ] {
            assert!(check_url(good, false).is_ok(), "{good}");
        }
        for bad in [
            "example.com",
            "/webhooks",
            "https://",
            "ftp://example.com/",
            "file:///etc/passwd",
            "https://user@example.com/",
            "https://:password@example.com/",
            "https://example.com/#part",
            "https://example.com:0/",
            // What a parser makes another text of.
            " http://example.com/ ",
            "http://example.com/\ta",
            "http://exam\nple.com/",
            "http:example.com",
            "http:/example.com/",
            "http:///example.com/",
            "http:\\\\example.com\\",
            "https://Example.com/",
            "HTTPS://example.com/",
            "https://example.com:443/",
            "https://example.com:/",
            "https://@example.com/",
            "https://example.com/a/../b",
            "https://example.com/a b",
            "https://example.com/?a b",
            "https://bücher.example/",
        ] {
            assert!(check_url(bad, true).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_private_address_is_refused_in_every_way_of_writing_it_unless_it_is_allowed() {
        // Whether the way of writing it is accepted at all.
        for (private, plain) in [
            ("http://127.0.0.1/", true),
            ("http://127.1/", false),
            ("http://2130706433/", false),
            ("http://0x7f000001/", false),
            ("http://0177.0.0.1/", false),
            ("http://127。0。0。1/", false),
            ("http://169.254.169.254/latest/meta-data", true),
            ("http://[::1]/", true),
            ("http://[::ffff:10.0.0.1]/", false),
            ("http://[::ffff:a00:1]/", true),
            ("http://[fd00::1]/", true),
            ("http://[::]/", true),
            ("http://0.0.0.0/", true),
            ("http://10.1.2.3:8080/hook", true),
            ("http://localhost/", true),
            ("https://localhost:8443/hook", true),
            ("http://localhost./", true),
            ("http://shop.localhost/", true),
            ("http://LOCALHOST/", false),
        ] {
            let refused = Err(UrlRefusal::NotPublic);
            assert_eq!(check_url(private, false), refused, "{private}");
            assert_eq!(check_url(private, true).is_ok(), plain, "{private}");
        }
    }
}
