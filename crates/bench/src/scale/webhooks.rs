//! Webhook deliveries: what a claim takes while a hundredth of the rows is pending.

use std::time::{Duration, Instant};

use anyhow::ensure;
use sqlx::PgConnection;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use super::statements::{self, Statement, Watched};
use crate::data::{FAR_FUTURE, Shape};

/// Claims that are measured: fewer than are pending in the smallest database.
const CLAIMS: i64 = 500;

/// Time until the pending deliveries are due: enough to clear away what making them due left behind.
const DUE_IN: Duration = Duration::from_secs(15);

/// How long the claims may take after that.
const CLAIMS_LIMIT: Duration = Duration::from_secs(60);

/// Pause between two looks: some claims.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// Makes the pending deliveries due, and measures the claims of the worker that sends them.
pub(crate) async fn measure(connection: &mut PgConnection) -> anyhow::Result<Watched> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/", listener.local_addr()?);
    let receiver = tokio::spawn(receive(listener));
    sqlx::query("UPDATE webhook_endpoints SET url = $1")
        .bind(url)
        .execute(&mut *connection)
        .await?;
    let due = Instant::now() + DUE_IN;
    sqlx::query(
        "UPDATE webhook_deliveries
            SET ready = false, next_attempt_at = now() + $1 * interval '1 second'
          WHERE status = 'pending'",
    )
    .bind(i64::try_from(DUE_IN.as_secs())?)
    .execute(&mut *connection)
    .await?;
    sqlx::raw_sql("VACUUM (ANALYZE) webhook_deliveries")
        .execute(&mut *connection)
        .await?;
    ensure!(
        Instant::now() < due,
        "the deliveries were due before they could be vacuumed"
    );
    tokio::time::sleep_until(due.into()).await;
    statements::reset(connection).await?;
    let mut watched = Watched::new(Statement::Claim);
    let until = Instant::now() + CLAIMS_LIMIT;
    while watched.counted.rows < CLAIMS {
        ensure!(
            Instant::now() < until,
            "only {} deliveries were claimed in {CLAIMS_LIMIT:?}",
            watched.counted.rows
        );
        tokio::time::sleep(LOOK_INTERVAL).await;
        watched.look(connection).await?;
    }
    receiver.abort();
    Ok(watched)
}

/// Makes the deliveries what they were. Only while no service runs.
pub(crate) async fn restore(shape: &Shape, connection: &mut PgConnection) -> anyhow::Result<()> {
    sqlx::query(
        "UPDATE webhook_deliveries
            SET status = 'pending', attempts = '[]', claim = NULL, delivered_at = NULL, ready = false,
                next_attempt_at = to_timestamp($1::bigint / 1000000)
          WHERE (status = 'pending' AND next_attempt_at < to_timestamp($1::bigint / 1000000))
             OR delivered_at > to_timestamp($2::bigint / 1000000) + interval '2 seconds'",
    )
    .bind(FAR_FUTURE.cast_signed())
    // The newest stored delivery was made a second after the newest row.
    .bind(shape.until_micros.cast_signed())
    .execute(connection)
    .await?;
    Ok(())
}

/// An endpoint that takes everything.
async fn receive(listener: TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(answer(stream));
    }
}

/// Answers each piece of a request that ends a write: the sender writes head and body and waits.
async fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let mut request = Vec::new();
    loop {
        if stream.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
        if is_whole(&request) {
            request.clear();
            let reply = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
            stream.write_all(reply).await?;
        }
    }
}

/// Whether all of the body that the head announces has arrived.
fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let is_length = name.eq_ignore_ascii_case("content-length");
        is_length.then(|| value.trim().parse::<usize>().ok())?
    });
    body.len() >= length.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::is_whole;

    #[test]
    fn a_request_is_whole_with_the_last_byte_of_its_body() {
        let head = "POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\n";
        for (body, expected) in [("", false), ("ab", false), ("abc", true)] {
            assert_eq!(is_whole(format!("{head}{body}").as_bytes()), expected);
        }
        assert!(is_whole(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"));
        assert!(!is_whole(b"GET / HTTP/1.1\r\nhost: x\r\n"));
    }
}
