//! Which part of a list is asked for.
//!
//! Ids are UUIDv7, so their order is the order of creation and an id is a cursor.

use chrono::{DateTime, Utc};
use uuid::Uuid;

/// A page of a list, newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// 1 to 100 objects.
    pub limit: i64,
    /// Where the page lies.
    pub cursor: Cursor,
    /// Created at this moment or after.
    pub created_from: Option<DateTime<Utc>>,
    /// Created before this moment.
    pub created_before: Option<DateTime<Utc>>,
}

/// Where a page lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cursor {
    /// At the newest object.
    Newest,
    /// Right after this object: older ones.
    StartingAfter(Uuid),
    /// Right before this object: the next newer ones, still newest first.
    EndingBefore(Uuid),
}

impl Cursor {
    /// The object that the cursor names.
    pub(super) fn id(self) -> Option<Uuid> {
        match self {
            Self::StartingAfter(id) | Self::EndingBefore(id) => Some(id),
            Self::Newest => None,
        }
    }

    pub(super) fn older_than(self) -> Option<Uuid> {
        match self {
            Self::StartingAfter(id) => Some(id),
            Self::Newest | Self::EndingBefore(_) => None,
        }
    }

    pub(super) fn newer_than(self) -> Option<Uuid> {
        match self {
            Self::EndingBefore(id) => Some(id),
            Self::Newest | Self::StartingAfter(_) => None,
        }
    }
}

/// A page of a list that is in the order of its objects' names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamePage {
    /// 1 to 100 objects.
    pub limit: i64,
    /// Where the page lies.
    pub cursor: NameCursor,
}

/// Where a page of a list by name lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NameCursor {
    /// At the first name.
    First,
    /// Right after this name.
    StartingAfter(String),
    /// Right before this name: the names before it, still in their order.
    EndingBefore(String),
}

impl NameCursor {
    /// The name that the cursor names.
    pub(super) fn name(&self) -> Option<&str> {
        match self {
            Self::First => None,
            Self::StartingAfter(name) | Self::EndingBefore(name) => Some(name),
        }
    }
}

/// Objects of one page, and whether there are more beyond it.
#[derive(Debug)]
pub struct Listed<T> {
    /// In the order of the list.
    pub data: Vec<T>,
    /// More in the direction of the page.
    pub has_more: bool,
}

impl<T> Listed<T> {
    /// The same page of something made of each object.
    pub fn map<U>(self, of: impl FnMut(T) -> U) -> Listed<U> {
        Listed {
            data: self.data.into_iter().map(of).collect(),
            has_more: self.has_more,
        }
    }
}

impl Page {
    /// What to ask the database for: one row more than the page holds tells whether there are more.
    pub(super) fn rows(&self) -> i64 {
        self.limit + 1
    }

    /// Cuts the extra row off, and turns a page that was read towards newer objects around.
    pub(super) fn cut<T>(&self, rows: Vec<T>) -> Listed<T> {
        cut(rows, self.limit, self.cursor.newer_than().is_some())
    }
}

impl NamePage {
    /// What to ask the database for, as [`Page::rows`].
    pub(super) fn rows(&self) -> i64 {
        self.limit + 1
    }

    /// Cuts the extra row off, and turns a page that was read towards the first name around.
    pub(super) fn cut<T>(&self, rows: Vec<T>) -> Listed<T> {
        let is_turned = matches!(self.cursor, NameCursor::EndingBefore(_));
        cut(rows, self.limit, is_turned)
    }
}

fn cut<T>(mut rows: Vec<T>, limit: i64, is_turned: bool) -> Listed<T> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let has_more = rows.len() > limit;
    rows.truncate(limit);
    if is_turned {
        rows.reverse();
    }
    Listed {
        data: rows,
        has_more,
    }
}
