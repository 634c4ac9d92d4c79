//! What tells of a running service: the rules and the dashboard in `deploy/`, and the runbook.
//! Prometheus scrapes real replicas, and each alert fires when its fault is made.

mod alerts;
mod dashboard;
mod rules;
mod runbook;
