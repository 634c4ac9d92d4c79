#![doc = include_str!("../README.md")]

mod catalog;
mod registry;
mod scrape;

pub use metrics::{Counter, Gauge, Histogram, SharedString};
pub use metrics_exporter_prometheus::BuildError;

pub use self::{
    catalog::{Kind, Metric, PROCESS_METRICS, markdown_table},
    registry::{Labels, Registry, set_to_now, value},
    scrape::server,
};
