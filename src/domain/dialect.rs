//! The two dialects that every resource is served in.

use strum::{EnumString, IntoStaticStr, VariantArray};

/// Which dialect a client speaks. It is stored with work that outlives its request, so that the
/// reply is in the same dialect, whichever process writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Dialect {
    /// The IETF draft *The Idempotency-Key HTTP Header Field*.
    Ietf,
    /// Stripe's, for its official SDKs.
    Stripe,
}

named!(Dialect);
