//! What a text has, and what it hasn't.

/// A page, a complaint, or another text.
pub trait Text {
    /// Fails unless it has each of these parts.
    fn must_have(&self, parts: &[&str]);

    /// Fails if it has one of these parts.
    fn must_lack(&self, parts: &[&str]);

    /// What stands between the first `start` and the next `end`.
    fn between(&self, start: &str, end: &str) -> &str;
}

impl Text for str {
    #[track_caller]
    fn must_have(&self, parts: &[&str]) {
        for part in parts {
            assert!(self.contains(part), "{part:?} is not in {self}");
        }
    }

    #[track_caller]
    fn must_lack(&self, parts: &[&str]) {
        for part in parts {
            assert!(!self.contains(part), "{part:?} is in {self}");
        }
    }

    #[track_caller]
    fn between(&self, start: &str, end: &str) -> &str {
        let rest = self.split_once(start).map(|(_, rest)| rest);
        let found = rest.and_then(|rest| rest.split_once(end));
        found
            .unwrap_or_else(|| panic!("no {start:?} with {end:?} in {self}"))
            .0
    }
}
