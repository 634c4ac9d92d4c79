//! Where one request ends and the next begins, among the bytes that a client sends.
//!
//! Promise: the bytes of one request pass, however they were cut on their way. Those behind it pass
//! after [`Requests::begin_next`] only.
//!
//! This decides when bytes pass, and never what they mean: Actix parses them again, refuses what is
//! malformed, and closes the connection. So anything strange passes as it is, with two exceptions.
//! Actix drops the reply that says what is wrong with malformed chunks. And it ends a connection on
//! which a client asks for another protocol, so the request passes without asking for one.

use std::{mem::MaybeUninit, ops::Range};

use super::chunked::Chunked;

/// Largest head of a request, in bytes: many times what a client sends, its proxies included, and
/// what Node.js accepts.
pub(super) const HEAD_MAX: usize = 16 * 1024;

/// As many headers as Actix reads. With more, it answers 400.
const HEADERS_MAX: usize = 96;

/// The head is larger than [`HEAD_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HeadTooLarge;

/// What has passed of the request at hand.
#[derive(Debug, Default)]
pub(super) enum Requests {
    /// Nothing yet: a head passes when it is whole.
    #[default]
    Head,
    /// A part. `head_left` bytes of the head are still to come, and then the body.
    Request { head_left: usize, body: Body },
    /// All of it.
    Whole,
    /// The head is malformed, or the request lasts until the connection ends.
    Endless,
    /// The chunks of the body are malformed. No more of it passes.
    Broken,
}

#[derive(Debug)]
pub(super) enum Body {
    Sized(u64),
    Chunked(Chunked),
}

impl Requests {
    /// How many of the `received` bytes may pass now, at most `room`. They count as passed.
    /// `received` starts with the first byte that has not passed. A head that is whole is changed
    /// where it asks for another protocol.
    pub(super) fn take(&mut self, received: &mut [u8], room: usize) -> Result<usize, HeadTooLarge> {
        if self.is_in_head() {
            *self = find_head(received)?;
        }
        let (received, _) = received.split_at(room.min(received.len()));
        Ok(match self {
            Self::Head | Self::Whole | Self::Broken => 0,
            Self::Endless => received.len(),
            Self::Request { head_left, body } => {
                let (head, rest) = received.split_at((*head_left).min(received.len()));
                *head_left -= head.len();
                let taken = head.len() + body.take(rest);
                if *head_left == 0 && body.is_over() {
                    *self = Self::Whole;
                } else if body.is_broken() {
                    *self = Self::Broken;
                }
                taken
            }
        })
    }

    /// No part of the request has passed.
    pub(super) fn is_in_head(&self) -> bool {
        matches!(self, Self::Head)
    }

    /// All of the request has passed.
    pub(super) fn is_whole(&self) -> bool {
        matches!(self, Self::Whole)
    }

    /// The body is malformed, and all that is not has passed.
    pub(super) fn is_broken(&self) -> bool {
        matches!(self, Self::Broken)
    }

    /// From here on, bytes belong to the next request.
    pub(super) fn begin_next(&mut self) {
        *self = Self::Head;
    }
}

/// The length of the empty lines at the start, which mean nothing in front of a request (RFC 9112,
/// section 2.2).
pub(super) fn empty_lines(received: &[u8]) -> usize {
    let mut rest = received;
    while let Some(next) = rest.strip_prefix(b"\r\n").or(rest.strip_prefix(b"\n")) {
        rest = next;
    }
    received.len() - rest.len()
}

fn find_head(received: &mut [u8]) -> Result<Requests, HeadTooLarge> {
    let empty = empty_lines(received);
    let (_, received) = received.split_at_mut(empty);
    let mut headers = [const { MaybeUninit::uninit() }; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut []);
    match request.parse_with_uninit_headers(received, &mut headers) {
        Ok(httparse::Status::Complete(length)) if length <= HEAD_MAX => {
            let head_left = empty + length;
            let body = body_after(&request);
            for place in upgrades(&request, received) {
                if let Some(asked) = received.get_mut(place) {
                    asked.fill(b' ');
                }
            }
            Ok(body.map_or(Requests::Endless, |body| Requests::Request {
                head_left,
                body,
            }))
        }
        Ok(httparse::Status::Partial) if received.len() < HEAD_MAX => Ok(Requests::Head),
        Ok(_) => Err(HeadTooLarge),
        Err(_) => Ok(Requests::Endless),
    }
}

/// Where the head asks for another protocol: what `Upgrade` names, and `upgrade` among the options
/// of `Connection`. No other protocol is served, so the request is to be answered as if it did not
/// ask (RFC 9110, section 7.8). Empty options mean nothing (section 5.6.1).
fn upgrades(head: &httparse::Request<'_, '_>, received: &[u8]) -> Vec<Range<usize>> {
    let place = |part: &[u8]| {
        let start = part.as_ptr().addr() - received.as_ptr().addr();
        start..start + part.len()
    };
    let mut places = Vec::new();
    for header in head.headers.iter() {
        if header.name.eq_ignore_ascii_case("upgrade") {
            places.push(place(header.value));
        } else if header.name.eq_ignore_ascii_case("connection") {
            let options = header.value.split(|byte| *byte == b',');
            let asking =
                options.filter(|option| option.trim_ascii().eq_ignore_ascii_case(b"upgrade"));
            places.extend(asking.map(place));
        }
    }
    places
}

/// What follows the head (RFC 9112, section 6.3). `None` for what Actix refuses, and for CONNECT,
/// after which it closes the connection.
fn body_after(head: &httparse::Request<'_, '_>) -> Option<Body> {
    let mut length = None;
    let mut chunked = false;
    for header in head.headers.iter() {
        if header.name.eq_ignore_ascii_case("content-length") {
            let value = str::from_utf8(header.value).ok()?.trim();
            // A number may not begin with a sign here.
            let is_number = value.bytes().all(|byte| byte.is_ascii_digit());
            if !is_number || length.is_some() {
                return None;
            }
            length = Some(value.parse().ok()?);
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            if chunked || !header.value.trim_ascii().eq_ignore_ascii_case(b"chunked") {
                return None;
            }
            chunked = true;
        }
    }
    match (length, chunked) {
        (Some(_), true) => None,
        (None, true) => Some(Body::Chunked(Chunked::SIZE)),
        (None | Some(0), false) if head.method == Some("CONNECT") => None,
        (length, false) => Some(Body::Sized(length.unwrap_or(0))),
    }
}

impl Body {
    fn take(&mut self, received: &[u8]) -> usize {
        match self {
            Self::Sized(left) => {
                let taken = usize::try_from(*left).unwrap_or(usize::MAX);
                let taken = taken.min(received.len());
                *left -= taken as u64;
                taken
            }
            Self::Chunked(chunked) => chunked.take(received),
        }
    }

    fn is_over(&self) -> bool {
        match self {
            Self::Sized(left) => *left == 0,
            Self::Chunked(chunked) => *chunked == Chunked::Over,
        }
    }

    fn is_broken(&self) -> bool {
        matches!(self, Self::Chunked(Chunked::Broken))
    }
}

#[cfg(test)]
mod tests;
