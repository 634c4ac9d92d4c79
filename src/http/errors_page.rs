//! `/errors`: every error code, for people. `doc_url` and `Link` point here.

use std::fmt::Write;

use actix_web::{HttpResponse, http::header::ContentType};

use crate::api::error::ErrorCode;

/// The page, made from the one table of codes.
pub(super) async fn show() -> HttpResponse {
    HttpResponse::Ok()
        .content_type(ContentType::html())
        .body(page())
}

fn page() -> String {
    let mut page = String::from(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>Errors · charge-once</title>\
         <style>body{font:16px/1.5 system-ui,sans-serif;max-width:50rem;margin:2rem auto;\
         padding:0 1rem}h2{font:600 1.1rem ui-monospace,monospace;margin:2rem 0 .25rem}\
         h2:target{background:#fff3bf}p{margin:.25rem 0}small{color:#666}</style></head>\n\
         <body><h1>Errors</h1>\n<p>Every error reply is \
         <code>{\"error\":{\"type\",\"code\",\"message\",\"param\"?,\"decline_code\"?,\
         \"charge\"?,\"doc_url\"}}</code>.</p>\n",
    );
    for code in ErrorCode::ALL {
        let (name, status) = (code.as_str(), code.status());
        let (family, explanation) = (code.error_type().as_str(), code.explanation());
        // Writing to a String can't fail; the table holds nothing that HTML would take for markup.
        let _ = writeln!(
            page,
            "<h2 id=\"{name}\">{name}</h2><p><small>{status} · {family}</small></p>\
             <p>{explanation}</p>"
        );
    }
    page.push_str("</body></html>\n");
    page
}
