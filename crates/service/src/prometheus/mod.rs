//! This module describes each metric of a service once. From that line it registers the metric and
//! writes the table for the documentation.
//!
//! ```rust
//! use charge_once_service::prometheus::{MetricKind, Registry, handles, markdown_table, metrics};
//!
//! metrics! {
//!     SOLD = "shop_sold_total", MetricKind::Counter, ["article"], "Articles sold.";
//!     STOCK = "shop_stock", MetricKind::Gauge, [], "Articles that are left.";
//!     SECONDS = "shop_sale_seconds", MetricKind::Histogram(&[0.1, 1.0]), [],
//!         "How long a sale took.";
//! }
//!
//! handles! {
//!     struct Sales(registry) {
//!         socks: counter SOLD [article = "socks"],
//!         stock: gauge STOCK,
//!         seconds: histogram SECONDS,
//!     }
//! }
//!
//! let registry = Registry::on(METRICS).unwrap();
//! let sales = Sales::of(&registry);
//! sales.socks.increment(2);
//! sales.stock.set(40);
//! sales.seconds.record(0.3);
//! let text = registry.render();
//! assert!(text.contains("shop_sold_total{article=\"socks\"} 2"));
//! assert!(text.contains("shop_sale_seconds_bucket{le=\"1\"} 1"));
//! assert!(markdown_table(METRICS).contains("| `shop_stock` | gauge |  | count | Articles that are left. |"));
//! ```
//!
//! - `server` serves `/metrics` on a listener, with one thread and 16 connections. On loopback it
//!   refuses a strange `Host`.
//! - A scrape renders what was counted. Set gauges of the database beside it.
//! - Call `tidy_up` now and then, or recorded values pile up where nothing scrapes. `Registry::off`
//!   counts nothing.
//! - A label should have few values, all known before the first request. An account, a key, an id
//!   or a path is no label.
//! - Only debug builds check that labels are complete and in order.

mod catalog;
mod registry;
mod scrape;

pub use crate::{handles, metrics};
pub use metrics::{Counter, Gauge, Histogram, SharedString};
pub use metrics_exporter_prometheus::BuildError;

pub use self::{
    catalog::{Metric, MetricKind, PROCESS_METRICS, markdown_table},
    registry::{Labels, Registry, set_to_now, value},
    scrape::server,
};
