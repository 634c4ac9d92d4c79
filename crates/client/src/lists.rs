//! Lists: which part of one is asked for, and the page that comes back.

use serde::Deserialize;

/// Which part of a list. Each list takes the filters that its function names; the service refuses
/// all others.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListQuery {
    /// 1 to 100. Default: 10.
    pub limit: Option<u32>,
    /// What comes after this id: older. A list of levels of inventory takes a sku.
    pub starting_after: Option<String>,
    /// What comes before it: newer.
    pub ending_before: Option<String>,
    /// Created at this second or later, in unix seconds.
    pub created_from: Option<i64>,
    /// Created before this second.
    pub created_before: Option<i64>,
    /// Your own reference; for payment methods, a customer: `cus_…`
    pub customer: Option<String>,
    /// A customer's e-mail address.
    pub email: Option<String>,
    /// `or_…`
    pub order: Option<String>,
    /// `ch_…`
    pub charge: Option<String>,
    /// `pi_…`
    pub payment_intent: Option<String>,
    /// `pm_…`
    pub payment_method: Option<String>,
    /// Your own id of an order.
    pub client_order_id: Option<String>,
    /// `charge.succeeded`, …, or a group of types: `charge.*`
    pub event_type: Option<String>,
    /// Several types of events, up to 20, in place of one.
    pub event_types: Vec<String>,
}

impl ListQuery {
    pub(super) fn after(&self, path: &str) -> String {
        let pairs = [
            ("limit", self.limit.map(|limit| limit.to_string())),
            ("starting_after", self.starting_after.clone()),
            ("ending_before", self.ending_before.clone()),
            ("created[gte]", self.created_from.map(|at| at.to_string())),
            ("created[lt]", self.created_before.map(|at| at.to_string())),
            ("customer", self.customer.clone()),
            ("email", self.email.clone()),
            ("order", self.order.clone()),
            ("charge", self.charge.clone()),
            ("payment_intent", self.payment_intent.clone()),
            ("payment_method", self.payment_method.clone()),
            ("client_order_id", self.client_order_id.clone()),
            ("type", self.event_type.clone()),
        ];
        let given = pairs
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)));
        let types = self.event_types.iter();
        let types = types.map(|name| ("types[]", name.clone()));
        with_query(path, given.chain(types))
    }
}

pub(super) fn with_query(
    path: &str,
    pairs: impl IntoIterator<Item = (&'static str, String)>,
) -> String {
    let query = form_urlencoded::Serializer::new(String::new())
        .extend_pairs(pairs)
        .finish();
    if query.is_empty() {
        path.to_owned()
    } else {
        format!("{path}?{query}")
    }
}

/// A page of a list, newest first; of levels of inventory, in the order of their skus.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Page<T> {
    /// The objects.
    pub data: Vec<T>,
    /// Whether there are more beyond it.
    pub has_more: bool,
}
