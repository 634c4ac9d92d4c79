//! How requests leave the process: one set of rules for every HTTP client of a service.
//!
//! Promise: TLS trusts the root certificates that are compiled in, so it works the same on every
//! machine and in an image without certificates. Nothing is sent anywhere but to the host that was
//! named, and nothing is sent twice unless the caller sends it twice.

use std::{error::Error, sync::Arc};

use rustls::ClientConfig;
pub use rustls::Error as TlsError;

/// A builder of HTTP clients: TLS by rustls on ring with Mozilla's root certificates, no redirects,
/// no proxy from the environment, and no retries of the library's own. Time limits are the
/// caller's. Fails with [`TlsError`] when the TLS library refuses its own default protocol
/// versions, which is a defect.
pub fn http_client_builder() -> Result<reqwest::ClientBuilder, TlsError> {
    let roots = rustls::RootCertStore {
        roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        // A redirect would take an API key or an instruction to a host that was never named.
        .redirect(reqwest::redirect::Policy::none())
        // So would a proxy.
        .no_proxy()
        // Every attempt is counted, and announced, where it is known what sending again means.
        .retry(reqwest::retry::never()))
}

/// Reads the body of a response; `None` if it is longer than `limit` bytes. Fails with the
/// connection's error: the end of the body is missing.
pub async fn read_body(
    response: &mut reqwest::Response,
    limit: usize,
) -> Result<Option<Vec<u8>>, reqwest::Error> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > limit {
            return Ok(None);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Some(body))
}

/// The text of an error with its causes.
pub fn explain(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    let causes: Vec<_> = causes.map(ToString::to_string).collect();
    causes.join(": ")
}
