#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may stop at the first surprise"
)]
use proptest::{collection::vec, prelude::*};

use super::*;

/// What passes of each request, when `pieces` arrive one by one, every reply comes at once, and
/// the dispatcher has `room`.
fn requests_of(pieces: &[&[u8]], room: usize) -> Result<Vec<Vec<u8>>, HeadTooLarge> {
    let mut requests = Requests::default();
    let mut held = Vec::new();
    let mut seen = vec![Vec::new()];
    for piece in pieces {
        held.extend_from_slice(piece);
        loop {
            let count = requests.take(&mut held, room)?;
            assert!(count <= room);
            seen.last_mut().unwrap().extend(held.drain(..count));
            if requests.is_whole() {
                requests.begin_next();
                seen.push(Vec::new());
            } else if count == 0 {
                break;
            }
        }
    }
    seen.retain(|request| !request.is_empty());
    Ok(seen)
}

const PLAIN: &[u8] = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n";
const SIZED: &[u8] = b"POST /charges HTTP/1.1\r\nHost: x\r\ncontent-LENGTH:  5 \r\n\r\nHEAD ";
const EMPTY: &[u8] = b"POST /charges HTTP/1.1\r\nContent-Length: 0\r\nHost: x\r\n\r\n";
const BARE: &[u8] = b"GET / HTTP/1.0\nHost: x\n\n";
const CHUNKED: &[u8] = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: Chunked\r\n\r\n\
    0a \r\n0\r\n\r\nGET /\r\n1;x=\"y\"\r\n\n\r\n000\r\nTrailer: y\r\n\r\n";
const NO_CHUNK: &[u8] = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";

const WELL_FORMED: [&[u8]; 6] = [PLAIN, SIZED, EMPTY, BARE, CHUNKED, NO_CHUNK];

#[test]
fn a_request_ends_where_the_next_begins_wherever_the_two_are_cut() {
    for first in WELL_FORMED {
        for second in WELL_FORMED {
            let both = [first, second].concat();
            for cut in 0..=both.len() {
                let (a, b) = both.split_at(cut);
                let requests = requests_of(&[a, b], usize::MAX).unwrap();
                assert_eq!(requests, [first, second], "{cut}");
            }
            let bytes: Vec<&[u8]> = both.chunks(1).collect();
            assert_eq!(requests_of(&bytes, 1).unwrap(), [first, second]);
        }
    }
}

proptest! {
    #[test]
    fn any_requests_cut_anywhere_stay_what_they_are(
        picks in vec(0..WELL_FORMED.len(), 1..12),
        body in vec(any::<u8>(), 0..300),
        chunk in 1_usize..40,
        cuts in vec(1_usize..90, 1..40),
        room in 1_usize..200,
    ) {
        let sized = format!("PUT / HTTP/1.1\r\nContent-Length: {}\r\n\r\n", body.len());
        let sized = [sized.as_bytes(), body.as_slice()].concat();
        let mut chunked = b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        for chunk in body.chunks(chunk) {
            chunked.extend(format!("{:X}\r\n", chunk.len()).as_bytes());
            chunked.extend(chunk);
            chunked.extend(b"\r\n");
        }
        chunked.extend(b"0\r\n\r\n");
        let mut sent: Vec<&[u8]> = picks.iter().map(|pick| WELL_FORMED[*pick]).collect();
        sent.extend([sized.as_slice(), &chunked, PLAIN]);
        let stream = sent.concat();

        let mut pieces = Vec::new();
        let mut rest = stream.as_slice();
        for cut in cuts.iter().cycle() {
            let (piece, behind) = rest.split_at((*cut).min(rest.len()));
            pieces.push(piece);
            rest = behind;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(requests_of(&pieces, room).unwrap(), sent);
    }

    #[test]
    fn any_bytes_at_all_are_taken_in_order_or_wait(
        bytes in vec(any::<u8>(), 0..400),
        head in prop_oneof![Just(CHUNKED), Just(SIZED), Just(b"".as_slice())],
        cut in 0_usize..400,
    ) {
        let stream = [head, &bytes].concat();
        let (a, b) = stream.split_at(cut.min(stream.len()));
        let requests = requests_of(&[a, b], usize::MAX).unwrap().concat();
        prop_assert!(stream.starts_with(&requests));
    }
}

#[test]
fn a_head_passes_when_it_is_whole_and_a_body_as_it_comes() {
    let mut requests = Requests::default();
    let take =
        |requests: &mut Requests, bytes: &[u8]| requests.take(&mut bytes.to_vec(), usize::MAX);
    let (head, body) = SIZED.split_at(SIZED.len() - 5);
    for length in 0..head.len() {
        assert_eq!(take(&mut requests, &head[..length]), Ok(0));
        assert!(requests.is_in_head());
    }
    assert_eq!(take(&mut requests, head), Ok(head.len()));
    assert!(!requests.is_in_head() && !requests.is_whole());
    assert_eq!(take(&mut requests, &body[..2]), Ok(2));
    // The next request waits.
    assert_eq!(take(&mut requests, &[&body[2..], PLAIN].concat()), Ok(3));
    assert!(requests.is_whole());
    assert_eq!(take(&mut requests, PLAIN), Ok(0));
    requests.begin_next();
    assert_eq!(take(&mut requests, PLAIN), Ok(PLAIN.len()));
}

/// Actix refuses these, or closes the connection after its reply.
#[test]
fn what_is_strange_passes_as_it_is() {
    for head in [
        "\u{16}\u{3}\u{1}",
        "GET /livez\r\n",
        "GET / HTTP/2.0\r\n",
        "GET / HTTP/1.1\r\nHost\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: +1\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length:\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        "CONNECT x:1 HTTP/1.1\r\n\r\n",
    ] {
        let stream = [head.as_bytes(), PLAIN, PLAIN].concat();
        let passed = requests_of(&[&stream], usize::MAX).unwrap();
        assert_eq!(passed, [stream], "{head}");
    }
}

/// The length stays, and so do other headers and options.
#[test]
fn no_head_asks_for_another_protocol() {
    for (sent, passed) in [
        ("Upgrade: h2c", "Upgrade:    "),
        ("uPGRADE:websocket", "uPGRADE:         "),
        ("Upgrade: a, b\r\nUpgrade: c", "Upgrade:     \r\nUpgrade:  "),
        ("Upgrade:", "Upgrade:"),
        ("Connection: Upgrade", "Connection:        "),
        ("CONNECTION:\tupgrade \t", "CONNECTION:\t        \t"),
        (
            "Connection: keep-alive, Upgrade, HTTP2-Settings",
            "Connection: keep-alive,        , HTTP2-Settings",
        ),
        (
            "Connection: close\r\nConnection: ,upgrade,Upgrade",
            "Connection: close\r\nConnection: ,       ,       ",
        ),
        ("Connection: upgrades", "Connection: upgrades"),
        ("X-Upgrade: h2c", "X-Upgrade: h2c"),
        (
            "Upgrade-Insecure-Requests: 1",
            "Upgrade-Insecure-Requests: 1",
        ),
    ] {
        for version in ["1.0", "1.1"] {
            let request = |headers: &str| {
                let body = "Upgrade: h2c\r\n";
                let length = body.len();
                format!(
                    "PUT /Upgrade: HTTP/{version}\r\n{headers}\r\nContent-Length: {length}\r\n\r\n{body}"
                )
            };
            let (sent, passed) = (request(sent), request(passed));
            let bytes: Vec<&[u8]> = sent.as_bytes().chunks(1).collect();
            for pieces in [vec![sent.as_bytes()], bytes] {
                let requests = requests_of(&pieces, usize::MAX).unwrap();
                assert_eq!(requests, [passed.as_bytes()], "{sent}");
            }
        }
    }
}

#[test]
fn of_a_body_in_malformed_chunks_no_more_passes_than_is_well_formed() {
    let head = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (well_formed, malformed) in [
        ("", "x\r\n"),
        ("", "\r\n"),
        ("", "-1\r\n"),
        ("1000000000000000", "0\r\n"),
        ("1\r", "\r"),
        ("1\r\na", "b\r\n"),
        ("1\r\na\r", "b"),
        ("0\r\n\r", "b"),
        ("1 ", "2\r\n"),
        ("1\t", "x\r\n"),
        ("1;", "\x01\r\n"),
        ("1; a", "\nX\r\n"),
        ("1;a", "\x7f\r\n"),
    ] {
        let well_formed = [head, well_formed].concat().into_bytes();
        let stream = [&well_formed, malformed.as_bytes(), PLAIN].concat();
        for pieces in [vec![stream.as_slice()], stream.chunks(1).collect()] {
            let passed = requests_of(&pieces, usize::MAX);
            assert_eq!(passed, Ok(vec![well_formed.clone()]), "{malformed}");
        }
    }
}

#[test]
fn a_head_is_bounded_whether_it_comes_at_once_or_byte_by_byte() {
    let head_of = |length: usize| {
        let start = "GET /livez HTTP/1.1\r\nX: ";
        let end = "\r\n\r\n";
        let value = "x".repeat(length - start.len() - end.len());
        format!("{start}{value}{end}").into_bytes()
    };
    let largest = head_of(HEAD_MAX);
    let larger = head_of(HEAD_MAX + 1);
    for size in [1000, 20_000] {
        let pieces: Vec<&[u8]> = largest.chunks(size).collect();
        assert_eq!(requests_of(&pieces, 100), Ok(vec![largest.clone()]));
        let pieces: Vec<&[u8]> = larger.chunks(size).collect();
        assert_eq!(requests_of(&pieces, 100), Err(HeadTooLarge));
    }
    // A head without an end is refused as soon as it is too large.
    assert_eq!(requests_of(&[&larger[..HEAD_MAX]], 100), Err(HeadTooLarge));
}

#[test]
fn empty_lines_are_counted_when_they_are_whole() {
    for (received, length) in [
        (&b""[..], 0),
        (b"\r", 0),
        (b"\r\n", 2),
        (b"\n\r\n\r", 3),
        (b"\r\n\nGET", 3),
        (b"GET\r\n", 0),
        (b"\r\r\n", 0),
    ] {
        assert_eq!(empty_lines(received), length, "{received:?}");
    }
}
