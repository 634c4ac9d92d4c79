//! 6 · What runs beside requests.

pub mod expiry_sweep;
