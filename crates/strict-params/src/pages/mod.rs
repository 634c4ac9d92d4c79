//! Pages of lists that are as quick at their end as at their beginning, and that skip and repeat
//! nothing while rows are added.
//!
//! ```rust
//! use charge_once_strict_params::pages::{Page, PageQuery};
//! use charge_once_strict_params::{Encoding, Error, ParameterSet, Params};
//! use uuid::Uuid;
//!
//! fn page_of(query: &str) -> Result<Page, Error> {
//!     let tree = Encoding::Form.decode(query.as_bytes(), &[]);
//!     PageQuery::parse(&Params::new(Encoding::Form, tree))?.page(|id| Uuid::parse_str(id).ok())
//! }
//!
//! /// Bind `page.below()`, `page.above()` and `page.rows()`.
//! fn statement(page: &Page) -> &'static str {
//!     match page.is_turned() {
//!         false => "SELECT id FROM mugs WHERE id < $1 AND id > $2 ORDER BY id DESC LIMIT $3",
//!         true => "SELECT id FROM mugs WHERE id < $1 AND id > $2 ORDER BY id ASC LIMIT $3",
//!     }
//! }
//!
//! let page = page_of("limit=2&ending_before=01890a5d-ac96-774b-bcce-b302099a8057").unwrap();
//! let expected = "SELECT id FROM mugs WHERE id < $1 AND id > $2 ORDER BY id ASC LIMIT $3";
//! assert_eq!(statement(&page), expected);
//! assert_eq!((page.below(), page.rows()), (Uuid::max(), 3));
//!
//! // Three rows: one more than the page holds. The page is shown newest first.
//! let listed = page.cut(vec![7, 8, 9]);
//! assert_eq!((listed.data, listed.has_more), (vec![8, 7], true));
//!
//! let error = page_of("starting_after=mug").unwrap_err();
//! let told = "Invalid parameter: starting_after. Must be an id of the kind that is listed.";
//! assert_eq!(error.message, told);
//! ```
//!
//! - Ids must be UUIDv7. `ID_SLACK` says what clocks and transactions must keep to.
//! - `starting_after` and `ending_before` may name a deleted object.
//! - A page has 10 objects by default, and 100 at most.
//! - For `created[gte]` and the like, filter `created_at` by `page.created_from` and
//!   `page.created_before` as well.
//! - `NamePage` is for lists in the order of texts.

mod page;
mod query;

pub use page::{Cursor, ID_SLACK, Listed, NamePage, Page, id_after};
pub use query::{
    Created, ENDING_BEFORE, LIMIT_DEFAULT, LIMIT_MAX, Limit, PageQuery, STARTING_AFTER,
};
