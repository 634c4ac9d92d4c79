//! What follows from the dialect of a request: paths and one status.

pub use crate::domain::dialect::Dialect;

impl Dialect {
    /// The dialect of a path: `/v1/…` is Stripe's, every other path the IETF draft's.
    pub fn of_path(path: &str) -> Self {
        match path.strip_prefix("/v1") {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => Self::Stripe,
            Some(_) | None => Self::Ietf,
        }
    }

    /// What `Location` and the `url` of a list start with.
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Ietf => "",
            Self::Stripe => "/v1",
        }
    }

    /// The status of a key that belongs to another request: 422 in the draft (section 2.7), 400 for
    /// Stripe's SDKs, which make an `IdempotencyError` of exactly that.
    pub fn key_reused_status(self) -> u16 {
        match self {
            Self::Ietf => 422,
            Self::Stripe => 400,
        }
    }
}
