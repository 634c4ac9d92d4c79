#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test may stop at the first surprise"
)]
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex, join, repeat, sink},
    time::timeout,
};

use super::{super::replies::OpenReply, *};

const SHORT: ConnectionTimeouts = ConnectionTimeouts {
    keep_alive: Duration::from_millis(50),
    request_head: Duration::from_millis(50),
    reply: Duration::from_millis(50),
};

/// A head, and the beginning of a body that is malformed.
const BROKEN: &[u8] = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n";

/// Any test ends here, as a failure.
const PATIENCE: Duration = Duration::from_secs(20);

/// Reads to the end, as the dispatcher does that has nothing to answer.
async fn read_all<S: AsyncRead + AsyncWrite + Unpin>(connection: &mut Connection<S>) -> usize {
    let mut count = 0;
    let mut bytes = vec![0; 8 * 1024];
    loop {
        match connection.read(&mut bytes).await.unwrap() {
            0 => return count,
            more => count += more,
        }
    }
}

/// Sends these bytes and 120,000 more, and reads what it is told.
async fn answer_to(sent: &[u8], mut client: DuplexStream) -> String {
    let bytes = [sent, vec![b'x'; 120_000].as_slice()].concat();
    let sent = client.write_all(&bytes).await;
    sent.expect("it is read and dropped");
    client.shutdown().await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    answer
}

/// A client that is faster than its reader: there is always more.
struct Flood(&'static [u8]);

impl AsyncRead for Flood {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let head = std::mem::take(&mut self.get_mut().0);
        buf.put_slice(head);
        if head.is_empty() {
            buf.initialize_unfilled().fill(b'x');
            buf.advance(buf.remaining());
        }
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn a_flood_instead_of_the_end_of_an_unread_body_ends_the_connection() {
    let head = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffff\r\n";
    let mut connection = Connection::new(join(Flood(head), sink()), SHORT);
    let mut bytes = [0; 1024];
    assert_eq!(connection.read(&mut bytes).await.unwrap(), head.len());
    drop(OpenReply(Some(connection.replies.clone())));
    connection.flush().await.unwrap();

    let replied = Instant::now();
    let mut count = 1;
    while count > 0 && replied.elapsed() < PATIENCE {
        count = connection.read(&mut bytes).await.unwrap();
    }
    assert_eq!(count, 0, "it never ends");
}

/// This client lets no timer of the same task ring: its bytes take the task's whole budget.
#[tokio::test]
async fn a_flood_instead_of_a_request_ends_the_connection() {
    let mut connection = Connection::new(join(repeat(b'x'), sink()), SHORT);
    let count = timeout(PATIENCE, read_all(&mut connection)).await;
    assert_eq!(count, Ok(0), "no byte passes");
}

#[tokio::test]
async fn a_client_that_is_refused_can_send_on_and_reads_the_refusal() {
    // A busy machine needs a while to pass the head through so small a pipe.
    let timeouts = ConnectionTimeouts {
        request_head: PATIENCE,
        ..SHORT
    };
    let (socket, client) = duplex(1024);
    let mut connection = Connection::new(socket, timeouts);
    let serving = async move { read_all(&mut connection).await };
    let asking = answer_to(b"GET / HTTP/1.1\r\nX: ", client);
    let both = timeout(PATIENCE, async { tokio::join!(serving, asking) });
    let (passed, refusal) = both.await.expect("both end");
    assert_eq!(passed, 0);
    assert!(refusal.starts_with("HTTP/1.1 431 "), "{refusal}");
}

#[tokio::test]
async fn a_client_whose_body_broke_can_send_on_and_reads_its_reply() {
    let (socket, client) = duplex(1024);
    let mut connection = Connection::new(socket, SHORT);
    let serving = async move {
        read_all(&mut connection).await;
        connection.write_all(b"the reply").await.unwrap();
        connection.shutdown().await.unwrap();
    };
    let asking = answer_to(BROKEN, client);
    let both = timeout(PATIENCE, async { tokio::join!(serving, asking) });
    assert_eq!(both.await.expect("both end").1, "the reply");
}

#[tokio::test]
async fn a_client_whose_body_broke_and_who_sends_on_for_good_is_left() {
    let flood = BROKEN.chain(repeat(b'x'));
    let mut connection = Connection::new(join(flood, sink()), SHORT);
    read_all(&mut connection).await;
    let ended = timeout(PATIENCE, connection.shutdown()).await;
    ended.expect("it is left").unwrap();
}

#[tokio::test]
async fn a_connection_that_is_cut_writes_nothing_more() {
    let (socket, mut client) = duplex(1024);
    let mut connection = Connection::new(socket, SHORT);
    connection.write_all(b"first").await.unwrap();
    OpenReply(Some(connection.replies.clone())).cut();
    let refused = connection.write_all(b"second").await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionAborted);
    drop(connection);
    let mut received = String::new();
    client.read_to_string(&mut received).await.unwrap();
    assert_eq!(received, "first");
}
