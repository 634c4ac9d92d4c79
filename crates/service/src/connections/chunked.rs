//! Where a chunked body ends (RFC 9112, section 7.1).

/// The place in a chunked body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Chunked {
    /// In the digits of a chunk's size; none may be missing.
    Size {
        size: u64,
        has_digits: bool,
    },
    /// In the space behind the digits.
    SizeSpace {
        size: u64,
    },
    /// In what may follow a semicolon, which means nothing here.
    Extension {
        size: u64,
    },
    /// Before the LF of a line with a size.
    SizeLf {
        size: u64,
    },
    /// This many bytes before the end of a chunk.
    Data(u64),
    /// Before the CR and the LF after a chunk.
    DataCr,
    DataLf,
    /// At the start of a line after the last chunk: a trailer, or the end.
    LineStart,
    /// In a trailer, and before its LF.
    Trailer,
    TrailerLf,
    /// Before the LF of the empty line that ends the body.
    EndLf,
    /// Behind the body.
    Over,
    /// The body is malformed.
    Broken,
}

impl Chunked {
    /// The start of a body, and of each chunk.
    pub(super) const SIZE: Self = Self::Size {
        size: 0,
        has_digits: false,
    };

    /// How many of the bytes belong to the body; of a malformed one, those before the first that
    /// can't.
    pub(super) fn take(&mut self, received: &[u8]) -> usize {
        let mut rest = received;
        while !matches!(self, Self::Over | Self::Broken) {
            if let Self::Data(left) = self {
                let chunk = usize::try_from(*left).unwrap_or(usize::MAX);
                let (chunk, behind) = rest.split_at(chunk.min(rest.len()));
                *left -= chunk.len() as u64;
                rest = behind;
                if *left == 0 {
                    *self = Self::DataCr;
                }
            }
            let Some((byte, behind)) = rest.split_first() else {
                break;
            };
            *self = self.after(*byte);
            if *self != Self::Broken {
                rest = behind;
            }
        }
        received.len() - rest.len()
    }

    /// The place behind one more byte, which is not a chunk's data.
    fn after(self, byte: u8) -> Self {
        match (self, byte) {
            (Self::Size { size, has_digits }, _) => match (char::from(byte).to_digit(16), byte) {
                (Some(digit), _) => match size.checked_mul(16) {
                    Some(size) => Self::Size {
                        size: size | u64::from(digit),
                        has_digits: true,
                    },
                    None => Self::Broken,
                },
                (None, b'\r') if has_digits => Self::SizeLf { size },
                (None, b' ' | b'\t') if has_digits => Self::SizeSpace { size },
                (None, b';') if has_digits => Self::Extension { size },
                (None, _) => Self::Broken,
            },
            (Self::SizeSpace { size }, b' ' | b'\t') => Self::SizeSpace { size },
            (Self::SizeSpace { size }, b';') => Self::Extension { size },
            (Self::SizeSpace { size } | Self::Extension { size }, b'\r') => Self::SizeLf { size },
            (Self::Extension { size }, b'\t' | b' '..=b'~' | 0x80..) => Self::Extension { size },
            (Self::SizeLf { size: 0 }, b'\n') => Self::LineStart,
            (Self::SizeLf { size }, b'\n') => Self::Data(size),
            (Self::DataCr, b'\r') => Self::DataLf,
            (Self::DataLf, b'\n') => Self::SIZE,
            (Self::LineStart, b'\r') => Self::EndLf,
            (Self::Trailer, b'\r') => Self::TrailerLf,
            (Self::LineStart | Self::Trailer, _) => Self::Trailer,
            (Self::TrailerLf, b'\n') => Self::LineStart,
            (Self::EndLf, b'\n') => Self::Over,
            (
                Self::SizeSpace { .. }
                | Self::Extension { .. }
                | Self::SizeLf { .. }
                | Self::Data(_)
                | Self::DataCr
                | Self::DataLf
                | Self::TrailerLf
                | Self::EndLf
                | Self::Over
                | Self::Broken,
                _,
            ) => Self::Broken,
        }
    }
}
