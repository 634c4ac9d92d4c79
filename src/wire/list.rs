//! What lists and references look like.

use std::fmt::Display;

use serde::Serialize;

/// `{"object":"list","data":[…],"has_more":…,"url":…}`
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub struct List<T> {
    /// Always `list`.
    #[schema(example = "list")]
    pub object: &'static str,
    /// Newest first; the requests of a workflow oldest first, levels of inventory by their sku.
    pub data: Vec<T>,
    /// Whether there are more beyond this page.
    pub has_more: bool,
    /// The path of the list, without its host.
    #[schema(example = "/charges")]
    pub url: String,
}

impl<T> List<T> {
    /// One page of the list at `url`.
    pub fn new(data: Vec<T>, has_more: bool, url: String) -> Self {
        Self {
            object: "list",
            data,
            has_more,
            url,
        }
    }
}

/// `{"object":"search_result","data":[…],"has_more":…,"next_page":…,"url":…}`
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub struct SearchResult<T> {
    /// Always `search_result`.
    #[schema(example = "search_result")]
    pub object: &'static str,
    /// Newest first.
    pub data: Vec<T>,
    /// Whether there are more beyond this page.
    pub has_more: bool,
    /// The parameter `page` that shows more.
    #[schema(required = true)]
    pub next_page: Option<String>,
    /// The path of the search, without its host.
    #[schema(example = "/customers/search")]
    pub url: String,
}

/// A reference to another object: its id, or all of it where `expand` asks for it.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[serde(untagged)]
pub enum Expandable<T> {
    /// The id.
    Id(String),
    /// The object as it is now.
    Object(Box<T>),
}

impl<T> Expandable<T> {
    /// The id of what may be there.
    pub fn maybe(id: Option<impl Display>) -> Option<Self> {
        id.map(|id| Self::Id(id.to_string()))
    }
}
