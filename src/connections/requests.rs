//! Where one request ends and the next begins, among the bytes that a client sends.
//!
//! Promise: the bytes of one request pass, however they were cut on their way. Those behind it pass
//! after [`Requests::begin_next`] only.
//!
//! This decides when bytes pass, and never what they mean: Actix parses them again, refuses what is
//! malformed, and closes the connection. So anything strange passes as it is, but for malformed chunks:
//! Actix drops the reply that says what is wrong with them.

use std::mem::MaybeUninit;

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
pub(super) struct Requests {
    stage: Stage,
}

#[derive(Debug, Default)]
enum Stage {
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
enum Body {
    Sized(u64),
    Chunked(Chunked),
}

impl Requests {
    /// How many of the `received` bytes may pass now, at most `room`. They count as passed. `received`
    /// starts with the first byte that has not passed.
    pub(super) fn take(&mut self, received: &[u8], room: usize) -> Result<usize, HeadTooLarge> {
        if matches!(self.stage, Stage::Head) {
            self.stage = find_head(received)?;
        }
        let (received, _) = received.split_at(room.min(received.len()));
        Ok(match &mut self.stage {
            Stage::Head | Stage::Whole | Stage::Broken => 0,
            Stage::Endless => received.len(),
            Stage::Request { head_left, body } => {
                let (head, rest) = received.split_at((*head_left).min(received.len()));
                *head_left -= head.len();
                let taken = head.len() + body.take(rest);
                if *head_left == 0 && body.is_over() {
                    self.stage = Stage::Whole;
                } else if body.is_broken() {
                    self.stage = Stage::Broken;
                }
                taken
            }
        })
    }

    /// No part of the request has passed.
    pub(super) fn is_in_head(&self) -> bool {
        matches!(self.stage, Stage::Head)
    }

    /// All of the request has passed.
    pub(super) fn is_whole(&self) -> bool {
        matches!(self.stage, Stage::Whole)
    }

    /// The body is malformed, and all that is not has passed.
    pub(super) fn is_broken(&self) -> bool {
        matches!(self.stage, Stage::Broken)
    }

    /// From here on, bytes belong to the next request.
    pub(super) fn begin_next(&mut self) {
        self.stage = Stage::Head;
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

fn find_head(received: &[u8]) -> Result<Stage, HeadTooLarge> {
    let (empty, received) = received.split_at(empty_lines(received));
    let mut headers = [const { MaybeUninit::uninit() }; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut []);
    match request.parse_with_uninit_headers(received, &mut headers) {
        Ok(httparse::Status::Complete(length)) if length <= HEAD_MAX => {
            let head_left = empty.len() + length;
            let body = body_after(&request);
            Ok(body.map_or(Stage::Endless, |body| Stage::Request { head_left, body }))
        }
        Ok(httparse::Status::Partial) if received.len() < HEAD_MAX => Ok(Stage::Head),
        Ok(_) => Err(HeadTooLarge),
        Err(_) => Ok(Stage::Endless),
    }
}

/// What follows the head (RFC 9112, section 6.3). `None` for what Actix refuses, and for a change of
/// protocol, after which it closes the connection. It sees such a change only where it sees no body.
fn body_after(head: &httparse::Request<'_, '_>) -> Option<Body> {
    let mut length = None;
    let mut chunked = false;
    let mut upgrades = false;
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
        } else if header.name.eq_ignore_ascii_case("upgrade")
            && header.value.trim_ascii().eq_ignore_ascii_case(b"websocket")
        {
            upgrades = true;
        }
    }
    match (length, chunked) {
        (Some(_), true) => None,
        (None, true) => Some(Body::Chunked(Chunked::default())),
        (_, false) if upgrades => None,
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
            Self::Chunked(chunked) => chunked.is_over(),
        }
    }

    fn is_broken(&self) -> bool {
        match self {
            Self::Sized(_) => false,
            Self::Chunked(chunked) => chunked.is_broken(),
        }
    }
}

#[cfg(test)]
mod tests;
