//! Receives webhooks at `http://$BIND_ADDRESS/webhooks` until SIGINT or SIGTERM.

use std::{env, error::Error};

use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt::init();
    let secret = variable("WEBHOOK_SECRET")?;
    // With an empty secret, any sender could sign.
    if !secret.starts_with("whsec_") {
        return Err("WEBHOOK_SECRET must be the endpoint's secret, whsec_…".into());
    }
    let pool = webhook_receiver::connect(&variable("DATABASE_URL")?).await?;
    let address = env::var("BIND_ADDRESS").unwrap_or_else(|_| "127.0.0.1:4000".into());
    let listener = TcpListener::bind(&address).await?;
    println!("listening on http://{}/webhooks", listener.local_addr()?);

    let mut terminate = signal(SignalKind::terminate())?;
    let stop = async move {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        }
    };
    axum::serve(listener, webhook_receiver::app(pool.clone(), secret))
        .with_graceful_shutdown(stop)
        .await?;
    pool.close().await;
    Ok(())
}

fn variable(name: &str) -> Result<String, String> {
    env::var(name).map_err(|_| format!("{name} must be set"))
}
