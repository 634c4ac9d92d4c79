//! A client's connection, as Actix's dispatcher reads and writes it.
//!
//! Promise:
//!
//! - The dispatcher sees one request at a time: a head when it is whole, its body as it comes, and
//!   the next request when the reply has been written. Actix takes the method of the newest request
//!   for the one that it answers, so that a pipelined HEAD would remove the body of the reply
//!   before it.
//! - No client holds the connection by doing nothing. Waiting for a request, for the rest of its
//!   head, for an unread body, and for the client to read its reply each end at a deadline.
//! - A connection that is cut sends nothing more: not a byte of the reply that it is cut for.
//! - At most [`HEAD_MAX`] bytes wait here.

use std::{
    io,
    mem::MaybeUninit,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Duration, Instant},
};

use super::{
    deadline::Deadline,
    replies::Replies,
    requests::{HEAD_MAX, HeadTooLarge, Requests, empty_lines},
};
use crate::connections::ConnectionTimeouts;

/// How long bytes are read and dropped after a refusal, and after the reply to a broken body.
/// Closing a socket with unread bytes resets it, and the client might never see what it was told. A
/// client that has read its answer usually closes at once. 5 seconds is the default of nginx's
/// `lingering_timeout`.
const REFUSED_TIMEOUT: Duration = Duration::from_secs(5);

/// How much is read at once only to be dropped, in bytes.
const LINGER_BYTES: usize = 4 * 1024;

/// What an idle connection keeps of its buffer, in bytes: enough for an ordinary request.
const HELD_KEPT_MAX: usize = 2 * 1024;

const REQUEST_TIMEOUT: &[u8] =
    b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

const HEAD_TOO_LARGE: &[u8] = b"HTTP/1.1 431 Request Header Fields Too Large\r\n\
      content-length: 0\r\nconnection: close\r\n\r\n";

/// A connection of which the dispatcher sees one request at a time, for a limited time.
#[derive(Debug)]
pub(super) struct Connection<S> {
    socket: S,
    timeouts: ConnectionTimeouts,
    /// What has passed to the dispatcher.
    requests: Requests,
    /// What has been received and has not passed.
    held: Vec<u8>,
    /// The client has closed its half: nothing comes after `held`.
    is_ended: bool,
    /// A part of a head is here, so that its deadline runs.
    head_has_begun: bool,
    /// The reply to the request at hand has been written whole.
    is_replied: bool,
    /// The client was told to go.
    is_refused: bool,
    /// The reply to a broken body has been written, and the client may still be sending.
    is_lingering: bool,
    /// Where the ends of its replies are told.
    pub(super) replies: Replies,
    /// For what the client is to send.
    receive: Deadline,
    /// For what the client is to read.
    send: Deadline,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    pub(super) fn new(socket: S, timeouts: ConnectionTimeouts) -> Self {
        let mut receive = Deadline::default();
        receive.at = Some(Instant::now() + timeouts.request_head);
        Self {
            socket,
            timeouts,
            requests: Requests::default(),
            held: Vec::new(),
            is_ended: false,
            head_has_begun: false,
            is_replied: false,
            is_refused: false,
            is_lingering: false,
            replies: Replies::default(),
            receive,
            send: Deadline::default(),
        }
    }

    /// Moves what may pass to `buf`. Ready without bytes is the end.
    fn poll_request(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            if self.is_refused {
                return self.poll_drop(cx, buf);
            }
            if self.requests.is_whole() && self.is_replied {
                self.begin_request();
            }
            let Ok(count) = self.take_held(buf) else {
                self.refuse(cx, HEAD_TOO_LARGE);
                continue;
            };
            if count > 0 || buf.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            if self.requests.is_broken() {
                // The dispatcher sees the end of the connection, and answers that the body did not
                // arrive whole.
                self.held = Vec::new();
                self.replies.end_with_next();
                return Poll::Ready(Ok(()));
            }
            let is_next_here = self.requests.is_whole() && !self.held.is_empty();
            if self.is_ended && !is_next_here {
                return Poll::Ready(Ok(()));
            }
            if self.is_ended || self.held.len() >= HEAD_MAX {
                // The reply wakes the task. More of the next requests waits in the kernel.
                return Poll::Pending;
            }
            ready!(self.poll_receive(cx, buf))?;
        }
    }

    /// Moves what may pass from `held` to `buf`, and returns the number of bytes.
    fn take_held(&mut self, buf: &mut ReadBuf<'_>) -> Result<usize, HeadTooLarge> {
        let was_in_head = self.requests.is_in_head();
        if was_in_head {
            let empty = empty_lines(&self.held);
            self.held.drain(..empty);
        }
        let count = self.requests.take(&mut self.held, buf.remaining())?;
        if was_in_head && !self.requests.is_in_head() {
            self.head_has_begun = false;
            self.receive.at = None;
        } else if was_in_head && !self.head_has_begun && !matches!(*self.held, [] | [b'\r']) {
            self.head_has_begun = true;
            self.receive.at = Some(Instant::now() + self.timeouts.request_head);
        }
        let (taken, _) = self.held.split_at(count);
        buf.put_slice(taken);
        self.held.drain(..count);
        if self.held.is_empty() && self.held.capacity() > HELD_KEPT_MAX {
            self.held = Vec::new();
        }
        Ok(count)
    }

    /// Reads from the socket into `held`, by way of the free space in `buf`.
    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut room = buf.take(HEAD_MAX.saturating_sub(self.held.len()));
        ready!(Pin::new(&mut self.socket).poll_read(cx, &mut room))?;
        self.is_ended = room.filled().is_empty();
        if self.is_ended {
            self.replies.client_leaves();
        }
        self.held.extend_from_slice(room.filled());
        Poll::Ready(Ok(()))
    }

    fn begin_request(&mut self) {
        self.requests.begin_next();
        self.is_replied = false;
        self.receive.at = Some(Instant::now() + self.timeouts.keep_alive);
    }

    /// Answers by itself, as far as the socket takes it at once, and ends the connection. Nothing
    /// of the request has reached the dispatcher, and all earlier replies have been written.
    fn refuse(&mut self, cx: &mut Context<'_>, reply: &[u8]) {
        self.is_refused = true;
        self.held = Vec::new();
        self.receive.at = Some(Instant::now() + REFUSED_TIMEOUT);
        let mut socket = Pin::new(&mut self.socket);
        // The client may be gone, and this may be the socket's second end.
        let _ = socket.as_mut().poll_write(cx, reply);
        let _ = socket.poll_shutdown(cx);
    }

    /// Reads and drops what a client still sends after its body broke, until it has closed its half
    /// or the time is over.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut dropped = [MaybeUninit::uninit(); LINGER_BYTES];
        let polled = self.poll_drop(cx, &mut ReadBuf::uninit(&mut dropped));
        if polled.is_ready() || self.receive.poll_passed(cx) {
            return Poll::Ready(());
        }
        Poll::Pending
    }

    /// Reads and drops, until the client has closed its half.
    fn poll_drop(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut room = buf.take(HEAD_MAX);
            ready!(Pin::new(&mut self.socket).poll_read(cx, &mut room))?;
            if room.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// The deadline for what the client is to send has passed.
    fn poll_late(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        tracing::debug!(
            has_begun = self.head_has_begun,
            "a connection is closed: its client did not send in time"
        );
        if self.head_has_begun && !self.is_refused {
            self.refuse(cx, REQUEST_TIMEOUT);
            return self.poll_read_until_late(cx, buf);
        }
        // The end of what the client sends makes the dispatcher close.
        Poll::Ready(Ok(()))
    }

    fn poll_read_until_late(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // A body that is sent without a pause is late, too.
        if self.is_replied && self.receive.poll_passed(cx) {
            return self.poll_late(cx, buf);
        }
        let polled = self.poll_request(cx, buf);
        if polled.is_pending() && self.receive.poll_passed(cx) {
            return self.poll_late(cx, buf);
        }
        polled
    }

    /// The dispatcher has written a reply to its end.
    fn end_reply(&mut self, cx: &mut Context<'_>) {
        self.send.at = None;
        self.is_replied = true;
        if self.requests.is_whole() {
            self.begin_request();
        } else {
            // The rest of an unread body has as long as a head: the next request is behind it.
            self.receive.at = Some(Instant::now() + self.timeouts.request_head);
        }
        // The dispatcher does not read again before it is woken.
        if !self.held.is_empty() || self.is_ended || self.receive.poll_passed(cx) {
            cx.waker().wake_by_ref();
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Connection<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.get_mut().poll_read_until_late(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Connection<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.replies.are_cut() {
            tracing::debug!("a connection is closed: its reply is to be lost");
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        let polled = Pin::new(&mut this.socket).poll_write(cx, bytes);
        if polled.is_ready() {
            return polled;
        }
        if this.send.at.is_none() {
            this.send.at = Some(Instant::now() + this.timeouts.reply);
        }
        if this.send.poll_passed(cx) {
            tracing::debug!("a connection is closed: its client did not read in time");
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Poll::Pending
    }

    /// The dispatcher flushes when it has written all that it had.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.socket).poll_flush(cx))?;
        if this.replies.take_ended() {
            this.end_reply(cx);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.is_lingering {
            ready!(Pin::new(&mut this.socket).poll_shutdown(cx))?;
            if !this.requests.is_broken() {
                return Poll::Ready(Ok(()));
            }
            this.is_lingering = true;
            this.receive.at = Some(Instant::now() + REFUSED_TIMEOUT);
        }
        this.poll_linger(cx).map(Ok)
    }
}

#[cfg(test)]
mod tests;
