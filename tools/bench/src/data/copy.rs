//! Rows in PostgreSQL's binary COPY format.

use uuid::Uuid;

/// The beginning of every such stream: signature, flags, and an extension of no bytes.
const HEAD: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

const END: [u8; 2] = (-1_i16).to_be_bytes();

/// Microseconds from 1970 to 2000, where PostgreSQL's time begins.
const EPOCH_MICROS: i64 = 946_684_800_000_000;

const TEXT_OID: i32 = 25;

/// Rows that are encoded and not sent yet.
#[derive(Debug)]
pub(crate) struct CopyRows {
    bytes: Vec<u8>,
}

impl CopyRows {
    pub(crate) fn new() -> Self {
        Self {
            bytes: HEAD.to_vec(),
        }
    }

    pub(crate) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    pub(crate) fn end(&mut self) {
        self.bytes.extend(END);
    }

    pub(crate) fn row(&mut self, columns: i16) -> &mut Self {
        self.bytes.extend(columns.to_be_bytes());
        self
    }

    pub(crate) fn uuid(&mut self, value: Uuid) -> &mut Self {
        self.bytes(value.as_bytes())
    }

    pub(crate) fn text(&mut self, value: &str) -> &mut Self {
        self.bytes(value.as_bytes())
    }

    pub(crate) fn optional(&mut self, value: Option<impl AsRef<[u8]>>) -> &mut Self {
        match value {
            Some(value) => self.bytes(value.as_ref()),
            None => self.null(),
        }
    }

    /// Binary JSON is its version and the text.
    pub(crate) fn jsonb(&mut self, value: &str) -> &mut Self {
        self.bytes.extend(length(value.len() + 1));
        self.bytes.push(1);
        self.bytes.extend(value.as_bytes());
        self
    }

    pub(crate) fn texts(&mut self, values: &[&str]) -> &mut Self {
        let mut list = Vec::new();
        let count = i32::try_from(values.len()).unwrap_or(i32::MAX);
        // One dimension, no NULL, elements of type text, and the first one has the number 1.
        for head in [1, 0, TEXT_OID, count, 1] {
            list.extend(head.to_be_bytes());
        }
        for value in values {
            list.extend(length(value.len()));
            list.extend(value.as_bytes());
        }
        self.bytes(&list)
    }

    pub(crate) fn small(&mut self, value: i16) -> &mut Self {
        self.bytes(&value.to_be_bytes())
    }

    pub(crate) fn int(&mut self, value: i32) -> &mut Self {
        self.bytes(&value.to_be_bytes())
    }

    pub(crate) fn big(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_be_bytes())
    }

    pub(crate) fn bool(&mut self, value: bool) -> &mut Self {
        self.bytes(&[u8::from(value)])
    }

    /// A time in microseconds since 1970.
    pub(crate) fn time(&mut self, micros: u64) -> &mut Self {
        let since_2000 = micros.cast_signed() - EPOCH_MICROS;
        self.bytes(&since_2000.to_be_bytes())
    }

    pub(crate) fn null(&mut self) -> &mut Self {
        self.bytes.extend((-1_i32).to_be_bytes());
        self
    }

    pub(crate) fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.bytes.extend(length(value.len()));
        self.bytes.extend(value);
        self
    }
}

/// No field of ours has two gigabytes.
fn length(bytes: usize) -> [u8; 4] {
    i32::try_from(bytes).unwrap_or(i32::MAX).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_as_the_manual_describes_it() {
        let mut rows = CopyRows::new();
        rows.row(4).small(7).text("ab").null().jsonb("{}");
        rows.end();
        let bytes = rows.take();
        assert_eq!(bytes.len(), 19 + 2 + (4 + 2) + (4 + 2) + 4 + (4 + 3) + 2);
        assert!(bytes.starts_with(b"PGCOPY\n\xff\r\n\0"));
        assert!(bytes.ends_with(b"\0\0\0\x03\x01{}\xff\xff"));
        assert!(rows.take().is_empty());
    }

    #[test]
    fn time_begins_in_2000() {
        let mut rows = CopyRows::new();
        rows.take();
        rows.time(946_684_800_000_001);
        assert_eq!(rows.take(), [0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 1]);
    }
}
