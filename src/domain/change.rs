//! What an update does to one value.

/// What an update does to one optional value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change<T> {
    /// It stays as it is.
    Keep,
    /// It is removed.
    Unset,
    /// It becomes this.
    Set(T),
}

impl<T> Change<T> {
    /// The value after the change.
    pub fn apply(self, current: Option<T>) -> Option<T> {
        match self {
            Self::Keep => current,
            Self::Unset => None,
            Self::Set(value) => Some(value),
        }
    }
}
