//! The two dialects that every resource is served in.

named! {
    /// Which dialect a client speaks. It is stored with work that outlives its request, so that the
    /// reply is in the same dialect, whichever process writes it.
    pub enum Dialect {
        /// The IETF draft *The Idempotency-Key HTTP Header Field*.
        Ietf,
        /// Stripe's, for its official SDKs.
        Stripe,
    }
}
