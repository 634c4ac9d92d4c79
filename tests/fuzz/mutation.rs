//! Random bytes that look like what is meant: pieces of a corpus, cut, joined, repeated and
//! spoiled.

use std::{fs, path::Path};

use proptest::{collection::vec, prelude::*, sample::Index};

/// The largest body that the service reads.
const BODY_MAX_BYTES: usize = 64 * 1024;

/// One spoiling of an input.
#[derive(Debug, Clone)]
enum Mutation {
    Flip(Index, u8),
    Cut(Index, Index),
    Insert(Index, Vec<u8>),
    /// Repeats a piece so many times in place.
    Repeat(Index, Index, usize),
}

/// The files of `corpus/{name}`, one or two in a row, mutated up to five times. One input in six is
/// not.
pub(crate) fn mutated(name: &str, tokens: &'static [&'static str]) -> BoxedStrategy<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus");
    let mut paths: Vec<_> = fs::read_dir(folder.join(name))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    let corpus: Vec<_> = paths.iter().map(|path| fs::read(path).unwrap()).collect();
    assert!(!corpus.is_empty(), "no corpus of {name}");
    let token = prop::sample::select(tokens).prop_map(|token| token.as_bytes().to_vec());
    let piece = prop_oneof![3 => token, 1 => vec(any::<u8>(), 1..8)];
    let mutation = prop_oneof![
        (any::<Index>(), any::<u8>()).prop_map(|(at, bits)| Mutation::Flip(at, bits)),
        (any::<Index>(), any::<Index>()).prop_map(|(from, to)| Mutation::Cut(from, to)),
        (any::<Index>(), piece).prop_map(|(at, piece)| Mutation::Insert(at, piece)),
        (any::<Index>(), any::<Index>(), 1_usize..5000)
            .prop_map(|(from, to, times)| Mutation::Repeat(from, to, times)),
    ];
    let base = vec(prop::sample::select(corpus), 1..3).prop_map(|files| files.concat());
    (base, vec(mutation, 0..6))
        .prop_map(|(base, mutations)| mutations.into_iter().fold(base, apply))
        .boxed()
}

fn apply(mut bytes: Vec<u8>, mutation: Mutation) -> Vec<u8> {
    let length = bytes.len();
    if length == 0 {
        return bytes;
    }
    let range = |one: Index, other: Index| {
        let (one, other) = (one.index(length), other.index(length));
        one.min(other)..one.max(other)
    };
    match mutation {
        Mutation::Flip(at, bits) => bytes[at.index(length)] ^= bits,
        Mutation::Cut(from, to) => {
            bytes.drain(range(from, to));
        }
        Mutation::Insert(at, piece) => {
            let at = at.index(length);
            bytes.splice(at..at, piece);
        }
        Mutation::Repeat(from, to, times) => {
            let range = range(from, to);
            let at = range.end;
            let times = times.min(BODY_MAX_BYTES / range.len().max(1));
            let repeated = bytes[range].repeat(times);
            bytes.splice(at..at, repeated);
        }
    }
    bytes.truncate(BODY_MAX_BYTES);
    bytes
}
