//! Endpoints that run a verb, and answer with one status and one view: each is one entry.
//!
//! Promise: an entry says all that is special about its endpoint, and all of them answer in one
//! way. The route stands in `mod.rs`.

/// Makes the handlers of verbs, with their descriptions for the OpenAPI document. All of them have
/// one tag, and reply with one view.
///
/// ```text
/// verbs! { "Refunds", RefundView;
///     /// Update a refund
///     ///
///     /// Names of metadata that the request doesn't mention stay.
///     update "updateRefund": post "/refunds/{id}" of id "The refund's id: re_…"
///         (UpdateRefundParams) => 200 "The refund.", Mutating [ResourceMissing],
///         |params| Update::<Refund> { id, params };
/// }
/// ```
///
/// makes `pub async fn update(…)`, which reads the parameters and runs that `Update`. The errors
/// are the kind of the endpoint, and its own codes, as in
/// [`errors!`](super::error_responses::errors).
macro_rules! verbs {
    (
        $tag:literal, $view:ident;
        $(
            $(#[$about:meta])*
            $handler:ident $operation:literal: $method:ident $path:literal
            $(of $id:ident $about_id:literal)? ($params:ident) => $status:literal $shown:literal,
            $kind:ident [$($code:ident),* $(,)?],
            $verb:expr;
        )+
    ) => {$(
        mod $handler {
            $crate::http::error_responses::errors! {
                pub(super) struct Errors, $operation; $kind [$($code),*]
            }
        }

        $(#[$about])*
        #[utoipa::path(
            $method, path = $path, tag = $tag, operation_id = $operation,
            params(
                $(("id" = String, Path, description = $about_id),)?
                $crate::http::parameters::MutatingHeaders,
            ),
            request_body = $params,
            responses(
                (status = $status, description = $shown, body = $view),
                $handler::Errors,
            ),
        )]
        pub async fn $handler(
            app: actix_web::web::Data<$crate::http::App>,
            $($id: actix_web::web::Path<String>,)?
            request: $crate::http::request::MutatingRequest,
        ) -> $crate::http::error::HttpResult {
            $(let $id = $id.into_inner();)?
            $crate::http::reply::run_verb(&app, request, $verb).await
        }
    )+};
}

pub(super) use verbs;
