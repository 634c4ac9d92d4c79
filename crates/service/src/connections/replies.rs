//! When the reply to a request has left the dispatcher, and which reply must not leave the process.
//!
//! Promise: the connection learns of the end of each reply that the application made, whether its
//! body was sent or dropped. Its buffers hold [`PIECE_MAX`] of a body, however large it is. No byte
//! of a reply with [`NoReply`] is written. A reply that begins after its request's body broke says
//! that the connection closes.

use std::{
    cell::Cell,
    error::Error,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use actix_web::{
    HttpRequest,
    body::{BodySize, BoxBody, MessageBody},
    web::Bytes,
};
use tokio::time::Instant;

/// Largest piece of a body that the dispatcher gets at once, in bytes. It copies each piece into
/// its buffer, where a slow reader would keep all of a large file.
const PIECE_MAX: usize = 32 * 1024;

/// In the extensions of a reply: the connection ends, and the client gets no byte of the reply. It
/// reads the end of the stream, or a reset, as if the network had lost the reply.
#[derive(Debug, Clone, Copy)]
pub struct NoReply;

/// When the client of a request closed its half of the connection, if it has done so: one that gave
/// up does, as `curl --max-time`. A few close it as soon as they have sent, and still read.
pub fn left_at(request: &HttpRequest) -> Option<Instant> {
    request.conn_data::<Replies>()?.0.left_at.get()
}

/// What a connection and its requests tell each other; they live on one thread.
#[derive(Debug, Clone, Default)]
pub(super) struct Replies(Rc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// The dispatcher has taken the last byte of a reply.
    has_ended: Cell<bool>,
    /// Nothing may be written any more.
    is_cut: Cell<bool>,
    /// No request follows the one at hand.
    is_last: Cell<bool>,
    /// When the client closed its half.
    left_at: Cell<Option<Instant>>,
}

impl Replies {
    /// Whether a reply has ended since this was asked last.
    pub(super) fn take_ended(&self) -> bool {
        self.0.has_ended.take()
    }

    /// Lets the next reply say that no other request is answered on the connection.
    pub(super) fn end_with_next(&self) {
        self.0.is_last.set(true);
    }

    /// The client sends no more.
    pub(super) fn client_leaves(&self) {
        if self.0.left_at.get().is_none() {
            self.0.left_at.set(Some(Instant::now()));
        }
    }

    pub(super) fn are_cut(&self) -> bool {
        self.0.is_cut.get()
    }
}

/// A reply that has not ended. It ends with this value.
#[derive(Debug)]
pub(super) struct OpenReply(pub(super) Option<Replies>);

impl OpenReply {
    /// Keeps the reply from its client, and all that would follow it on the connection. What
    /// earlier requests were answered has been written before this one was read.
    pub(super) fn cut(&self) {
        if let Some(replies) = &self.0 {
            replies.0.is_cut.set(true);
        }
    }

    /// Whether the connection closes behind this reply, as far as is known.
    pub(super) fn is_last(&self) -> bool {
        let replies = self.0.as_ref();
        replies.is_some_and(|replies| replies.0.is_last.get())
    }
}

impl Drop for OpenReply {
    fn drop(&mut self) {
        if let Some(replies) = &self.0 {
            replies.0.has_ended.set(true);
        }
    }
}

/// A reply's body in pieces. The dispatcher drops it as soon as the reply has been encoded.
pub(super) struct ReplyBody {
    body: BoxBody,
    /// What is left of the body's last chunk.
    rest: Bytes,
    _open: OpenReply,
}

impl ReplyBody {
    pub(super) fn new(body: BoxBody, open: OpenReply) -> Self {
        Self {
            body,
            rest: Bytes::new(),
            _open: open,
        }
    }
}

impl MessageBody for ReplyBody {
    type Error = Box<dyn Error>;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Self::Error>>> {
        let this = self.get_mut();
        if this.rest.is_empty() {
            match Pin::new(&mut this.body).poll_next(cx) {
                Poll::Ready(Some(Ok(chunk))) => this.rest = chunk,
                end @ (Poll::Ready(None | Some(Err(_))) | Poll::Pending) => return end,
            }
        }
        let piece = this.rest.split_to(this.rest.len().min(PIECE_MAX));
        Poll::Ready(Some(Ok(piece)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
    use futures_util::{FutureExt, future::poll_fn};

    use super::*;

    #[test]
    fn a_body_is_sent_in_pieces_and_its_end_is_told_when_it_is_dropped() {
        let bytes: Vec<u8> = (0..=255).cycle().take(2 * PIECE_MAX + 1).collect();
        let replies = Replies::default();
        let open = OpenReply(Some(replies.clone()));
        let mut body = ReplyBody::new(BoxBody::new(bytes.clone()), open);
        assert_eq!(body.size(), BodySize::Sized(bytes.len() as u64));

        let mut next = || poll_fn(|cx| Pin::new(&mut body).poll_next(cx)).now_or_never();
        let mut received = Vec::new();
        for length in [PIECE_MAX, PIECE_MAX, 1] {
            let piece = next().unwrap().unwrap().unwrap();
            assert_eq!(piece.len(), length);
            received.extend(piece);
        }
        assert!(next().unwrap().is_none());
        assert_eq!(received, bytes);

        assert!(!replies.take_ended());
        drop(body);
        assert!(replies.take_ended());
        assert!(!replies.take_ended());
    }
}
