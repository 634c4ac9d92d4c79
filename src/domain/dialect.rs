//! The two dialects that every resource is served in.

/// Which prefix a request came through, and what follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// `/`: the IETF draft *The Idempotency-Key HTTP Header Field*.
    Ietf,
    /// `/v1`: Stripe's, for its official SDKs.
    Stripe,
}

impl Dialect {
    /// The dialect of a path.
    pub fn of_path(path: &str) -> Self {
        match path.strip_prefix("/v1") {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => Self::Stripe,
            Some(_) | None => Self::Ietf,
        }
    }

    /// Its name where it is stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ietf => "ietf",
            Self::Stripe => "stripe",
        }
    }

    /// The dialect with this name.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Ietf, Self::Stripe]
            .into_iter()
            .find(|dialect| dialect.as_str() == name)
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
