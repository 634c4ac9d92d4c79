//! `bench`: measures charge-once on this machine.
//!
//! Promise: what is measured is the release program and a PostgreSQL that keeps what it
//! acknowledges. The load is made by this process, whose CPU time counts for neither.

mod cpu;
mod data;
mod load;
mod measure;
mod moving;
mod postgres;
mod run;
mod scale;
mod service;
mod stats;
mod table;

use anyhow::bail;
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    data::BigData,
    moving::Moving,
    run::Run,
    scale::{Expiry, Scale},
};

/// Measures charge-once.
#[derive(Debug, Parser)]
enum Command {
    /// Measures what a request costs, and what PostgreSQL alone takes for the same rows.
    Run(Run),
    /// Fills a database with as many rows as a busy month leaves, and keeps it.
    BigData(BigData),
    /// Measures the same work on a large and on a small database, and compares them.
    Scale(Scale),
    /// Measures what requests notice while a large part of all keys expires, again and again.
    Expiry(Expiry),
    /// Measures what an account that moves to another database and its neighbors notice.
    Move(Moving),
}

fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    let command = Command::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        tokio::select! {
            ended = carry_out(&command) => ended,
            // What was started ends when it is dropped.
            interrupted = interrupted() => interrupted.and_then(|()| bail!("interrupted")),
        }
    })
}

async fn carry_out(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Run(run) => run.run().await,
        Command::BigData(big_data) => big_data.run().await,
        Command::Scale(scale) => scale.run().await,
        Command::Expiry(expiry) => expiry.run().await,
        Command::Move(moving) => moving.run().await,
    }
}

/// Resolves when a person or a supervisor asks to end the run.
async fn interrupted() -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => Ok(interrupted?),
        _ = terminate.recv() => Ok(()),
    }
}
