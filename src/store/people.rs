//! The columns that say who and where a person is: `address`, `shipping` and `billing_details`.
//!
//! Every replica reads what any other wrote, so members are only ever added.

use serde::{Deserialize, Serialize};

use crate::domain::customer::{Address, BillingDetails, Shipping};

/// Makes structs as columns hold them, and both ways between them and the domain's.
macro_rules! stored {
    ($(
        $(#[$about:meta])*
        $stored:ident of $domain:ident { $($member:ident: $kind:ty),+ $(,)? }
    )+) => {$(
        $(#[$about])*
        #[derive(Debug, Serialize, Deserialize)]
        pub(super) struct $stored {
            $($member: $kind),+
        }

        impl From<$domain> for $stored {
            fn from(domain: $domain) -> Self {
                Self {
                    $($member: domain.$member.into()),+
                }
            }
        }

        impl From<$stored> for $domain {
            fn from(stored: $stored) -> Self {
                Self {
                    $($member: stored.$member.into()),+
                }
            }
        }
    )+};
}

stored! {
    /// An address as a column holds it.
    StoredAddress of Address {
        city: Option<String>,
        country: Option<String>,
        line1: Option<String>,
        line2: Option<String>,
        postal_code: Option<String>,
        state: Option<String>,
    }

    /// Where goods go, as a column holds it.
    StoredShipping of Shipping {
        address: StoredAddress,
        carrier: Option<String>,
        name: Option<String>,
        phone: Option<String>,
        tracking_number: Option<String>,
    }

    /// Who a bill goes to, as a column holds it.
    StoredBillingDetails of BillingDetails {
        address: StoredAddress,
        email: Option<String>,
        name: Option<String>,
        phone: Option<String>,
    }
}
