//! Swagger UI, compiled in, with a script of the service's own that starts it.

use std::{
    borrow::Cow,
    error::Error,
    sync::{Arc, LazyLock},
};

use actix_web::{
    HttpResponse,
    http::header::{CONTENT_SECURITY_POLICY, ContentType, LOCATION},
    web::Bytes,
};
use utoipa_swagger_ui::Config;

use crate::edge::pages::file;

/// Swagger UI sets styles on elements, and shows images that it holds itself.
const POLICY: &str = "default-src 'none'; script-src 'self'; connect-src 'self'; \
                      style-src 'self' 'unsafe-inline'; img-src 'self' data:; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'";

/// Makes the library's page as wide as the screen that it is on.
const FITTED_HEAD: &str = r#"<head>
    <meta name="viewport" content="width=device-width, initial-scale=1">"#;

// The library wants one for its own initializer, which is not served.
static CONFIG: LazyLock<Arc<Config<'static>>> =
    LazyLock::new(|| Arc::new(Config::from("/openapi.json")));

/// A file of Swagger UI by its path below the page's; the empty path is the page. `initializer` is
/// the script that calls `SwaggerUIBundle`, in place of the library's `swagger-initializer.js`.
/// `None`: there is no such file.
pub fn swagger_ui(
    path: &str,
    initializer: impl FnOnce() -> String,
) -> Result<Option<HttpResponse>, Box<dyn Error>> {
    if path == "swagger-initializer.js" {
        let mut response = HttpResponse::Ok();
        let response = response.content_type("text/javascript");
        return Ok(Some(response.body(initializer())));
    }
    let found = utoipa_swagger_ui::serve(path, Arc::clone(&CONFIG))?;
    Ok(found.map(|found| {
        // Compiled in, so that every reply sends the same bytes.
        let bytes = match found.bytes {
            Cow::Borrowed(bytes) => Bytes::from_static(bytes),
            Cow::Owned(bytes) => Bytes::from(bytes),
        };
        if found.content_type == ContentType::html().essence_str() {
            let page = String::from_utf8_lossy(&bytes).replacen("<head>", FITTED_HEAD, 1);
            return HttpResponse::Ok()
                .content_type(found.content_type)
                .insert_header((CONTENT_SECURITY_POLICY, POLICY))
                .body(page);
        }
        file(&found.content_type, bytes)
    }))
}

/// To the page at `path`, which ends with a slash: without it, the page's relative files would be
/// resolved wrongly.
pub fn swagger_ui_redirect(path: &str) -> HttpResponse {
    HttpResponse::PermanentRedirect()
        .insert_header((LOCATION, path))
        .finish()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
    use actix_web::{body::MessageBody, http::header::CACHE_CONTROL};

    use super::*;

    #[test]
    fn the_page_and_its_files_are_served_and_nothing_else() {
        let get = |path| swagger_ui(path, || "start()".to_owned()).unwrap();
        let page = get("").unwrap();
        assert!(page.headers().contains_key(CONTENT_SECURITY_POLICY));
        let page = page.into_body().try_into_bytes().unwrap();
        let page = String::from_utf8_lossy(&page).into_owned();
        assert!(page.contains("<meta name=\"viewport\""), "{page}");
        let script = get("swagger-ui-bundle.js").unwrap();
        assert!(script.headers().contains_key(CACHE_CONTROL));
        let initializer = get("swagger-initializer.js").unwrap();
        assert!(!initializer.headers().contains_key(CACHE_CONTROL));
        assert!(get("nothing.js").is_none());
    }
}
