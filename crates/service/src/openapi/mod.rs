//! This module does what [utoipa](https://docs.rs/utoipa) leaves to do before generators, linters
//! and Swagger UI like its document. Each pass is a modifier.
//!
//! ```rust
//! use charge_once_service::openapi::{ExampleKeys, FormBodies, References};
//! use utoipa::{OpenApi, ToSchema};
//!
//! #[derive(ToSchema)]
//! struct Mug {
//!     color: String,
//! }
//!
//! #[derive(ToSchema)]
//! struct List<T> {
//!     data: Vec<T>,
//! }
//!
//! #[derive(ToSchema)]
//! struct NewMug {
//!     color: String,
//!     labels: Vec<String>,
//! }
//!
//! #[utoipa::path(
//!     post, path = "/mugs", operation_id = "createMug",
//!     params(("Idempotency-Key" = String, Header)), request_body = NewMug,
//!     responses((status = 201, description = "The mug.", body = Mug)),
//! )]
//! async fn create() {}
//!
//! #[utoipa::path(
//!     get, path = "/mugs",
//!     responses((status = 200, description = "A page.", body = List<Mug>)),
//! )]
//! async fn list() {}
//!
//! const EXAMPLE_KEYS: ExampleKeys = ExampleKeys { header: "Idempotency-Key" };
//!
//! #[derive(OpenApi)]
//! #[openapi(paths(create, list), modifiers(&References, &FormBodies, &EXAMPLE_KEYS))]
//! struct Document;
//!
//! let document = serde_json::to_value(Document::openapi()).unwrap();
//! // utoipa alone copies the schema of Mug here, and a generator makes a second type of the copy.
//! let items = &document["components"]["schemas"]["List_Mug"]["properties"]["data"]["items"];
//! assert_eq!(items["$ref"], "#/components/schemas/Mug");
//! // Every body may be a form, in which a list has brackets.
//! let post = &document["paths"]["/mugs"]["post"];
//! let form = &post["requestBody"]["content"]["application/x-www-form-urlencoded"];
//! assert_eq!(form["schema"]["required"], serde_json::json!(["color", "labels[]"]));
//! // Swagger UI fills in a key, another one for each operation.
//! assert_eq!(post["parameters"][0]["example"].as_str().unwrap().len(), 36);
//! ```
//!
//! - `References` replaces copies of named schemas. It goes first.
//! - `FormBodies` describes each JSON body as a form too, and whether it is required.
//! - `SharedResponses` and `shared` move replies to `components/responses`.
//! - `ReplyHeader`, `describe_headers` and `list_header` describe headers once, with `required`.
//! - `ExampleKeys` gives each operation an idempotency key of its own.
//! - `names!` makes a view of an enum that has neither serde nor utoipa.
//! - `served` serves the document with an `ETag`.

mod form_bodies;
mod names;
mod operations;
mod references;
mod replies;
pub mod served;
#[cfg(test)]
mod tests;

pub use crate::names;
pub use form_bodies::FormBodies;
pub use operations::{ExampleKeys, has_parameter, operations};
pub use references::References;
pub use replies::{ReplyHeader, SharedResponses, describe_headers, list_header, shared};
/// For the macros of this crate.
#[doc(hidden)]
pub use {serde, utoipa};
