//! Endpoints: each is one entry of a table.
//!
//! Promise: an entry says all that is special about its endpoint, and all endpoints of a kind
//! answer in one way. The route stands in `mod.rs`.

/// Makes handlers, with their descriptions for the OpenAPI document. All of them have one tag.
/// There are three kinds: a verb runs, `one` object is retrieved, a `page` of a list is read. The
/// file around them imports the prelude.
///
/// ```text
/// endpoints! { "Refunds", RefundView;
///     /// Update a refund
///     ///
///     /// Names of metadata that the request doesn't mention stay.
///     update "updateRefund": post "/refunds/{id}" of id "The refund's id: re_…"
///         (UpdateRefundParams) => 200 "The refund.", Mutating [ResourceMissing],
///         |params| Update::<Refund> { id, params };
///
///     /// Retrieve a refund
///     one retrieve "retrieveRefund": "/refunds/{id}" of RefundId "The refund's id: re_…"
///         (ExpandRefund "`charge` shows the whole charge.") => RefundView "The refund.",
///         store::refunds::find;
///
///     /// List refunds
///     page list "listRefunds": "/refunds" of RefundId (ListRefundsQuery) [],
///         query => RefundFilter { charge: query.charge }, store::refunds::list;
/// }
/// ```
///
/// This makes `pub async fn update(…)`, which reads the parameters and runs that `Update`;
/// `retrieve(…)`, which shows what `find` finds; and `list(…)`, which reads a page by the filter
/// that the query makes. In brackets are the codes of errors that the endpoint has besides those
/// of its kind, as in [`errors!`](super::error_responses::errors). A text behind the parameters of
/// a verb describes its body.
macro_rules! endpoints {
    ($tag:literal, $view:ident;) => {};
    (
        $tag:literal, $view:ident;
        $(#[$about:meta])*
        one $handler:ident $operation:literal: $path:literal of $Id:ident $about_id:literal
        ($Expand:ident $about_expand:literal) => $shown:ident $about_shown:literal, $find:path;
        $($more:tt)*
    ) => {
        mod $handler {
            charge_once_strict_params::parameters! {
                /// How it is shown.
                pub(super) struct Query {
                    #[doc = $about_expand]
                    expand: charge_once_strict_params::Expand<super::$Expand>,
                }
            }
        }

        $(#[$about])*
        #[utoipa::path(
            get, path = $path, tag = $tag, operation_id = $operation,
            params(("id" = String, Path, description = $about_id), $handler::Query),
            responses((status = 200, description = $about_shown, body = $shown), ObjectErrors),
        )]
        pub async fn $handler(app: Data<App>, caller: Caller, request: HttpRequest) -> HttpResult {
            let query = query_params::<$handler::Query>(&request)?;
            let id = path_id::<$Id>(&request)?;
            reads::one::<$Id, _>(&app, caller, query.expand, id, move |connection| {
                Box::pin($find(connection, caller.account, id))
            })
            .await
        }

        endpoints! { $tag, $view; $($more)* }
    };
    (
        $tag:literal, $view:ident;
        $(#[$about:meta])*
        page $handler:ident $operation:literal: $path:literal of $Id:ident ($Query:ident)
        [$($code:ident),*], $query:ident => $filter:expr, $list:path;
        $($more:tt)*
    ) => {
        mod $handler {
            $crate::http::error_responses::errors! {
                pub(super) struct PageErrors, $operation; Reading [$($code),*]
            }
        }

        $(#[$about])*
        #[utoipa::path(
            get, path = $path, tag = $tag, operation_id = $operation,
            params(PageQuery, $Query),
            responses(
                (status = 200, description = "A page, newest first.", body = List<$view>),
                $handler::PageErrors,
            ),
        )]
        pub async fn $handler(app: Data<App>, caller: Caller, request: HttpRequest) -> HttpResult {
            let (page, $query) = reads::query::<$Id, $Query>(&request)?;
            let (account, filter, expand) = (caller.account, $filter, $query.expand);
            reads::listed(&app, caller, $path, page, expand, move |connection, page| {
                Box::pin($list(connection, account, page, filter))
            })
            .await
        }

        endpoints! { $tag, $view; $($more)* }
    };
    (
        $tag:literal, $view:ident;
        $(#[$about:meta])*
        $handler:ident $operation:literal: $method:ident $path:literal
        $(of $id:ident $about_id:literal)? ($params:ident $($about_params:literal)?)
        => $status:literal $shown:literal,
        $kind:ident [$($code:ident),* $(,)?],
        $verb:expr;
        $($more:tt)*
    ) => {
        mod $handler {
            $crate::http::error_responses::errors! {
                pub(super) struct VerbErrors, $operation; $kind [$($code),*]
            }
        }

        $(#[$about])*
        #[utoipa::path(
            $method, path = $path, tag = $tag, operation_id = $operation,
            params(
                $(("id" = String, Path, description = $about_id),)?
                MutatingHeaders,
            ),
            request_body(content = $params $(, description = $about_params)?),
            responses(
                (status = $status, description = $shown, body = $view),
                $handler::VerbErrors,
            ),
        )]
        pub async fn $handler(
            app: Data<App>,
            $($id: actix_web::web::Path<String>,)?
            request: MutatingRequest,
        ) -> HttpResult {
            $(let $id = $id.into_inner();)?
            run_verb(&app, request, $verb).await
        }

        endpoints! { $tag, $view; $($more)* }
    };
}

pub(super) use endpoints;
