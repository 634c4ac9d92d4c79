//! The two dialects that every resource is served in.

/// Which dialect a client speaks. It is stored with work that outlives its request, so that the
/// reply is in the same dialect, whichever process writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// The IETF draft *The Idempotency-Key HTTP Header Field*.
    Ietf,
    /// Stripe's, for its official SDKs.
    Stripe,
}

impl Dialect {
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
}
