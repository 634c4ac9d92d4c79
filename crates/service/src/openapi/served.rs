//! A document as programs get it.
//!
//! Promise: it is rendered and compressed once, when the server starts; a request only picks the
//! form that it accepts, or is told that it has the document already.

use std::io::{self, Write};

use actix_web::{
    HttpRequest, HttpResponse,
    http::header::{
        ACCEPT_ENCODING, AcceptEncoding, CACHE_CONTROL, CONTENT_ENCODING, ETAG, Encoding,
        EntityTag, Header, IfNoneMatch, VARY,
    },
    web::{self, Bytes},
};
use flate2::{Compression, write::GzEncoder};
use serde::Serialize;
use sha2::{Digest, Sha256};

/// The document in both of its forms.
pub struct ServedDocument {
    plain: Representation,
    gzip: Representation,
}

struct Representation {
    body: Bytes,
    tag: EntityTag,
}

impl Representation {
    fn new(body: Vec<u8>) -> Self {
        // A digest of the bytes, so that the two forms have different tags (RFC 9110, 8.8.3.3).
        let tag = EntityTag::new_strong(hex::encode(Sha256::digest(&body)));
        Self {
            body: body.into(),
            tag,
        }
    }
}

impl ServedDocument {
    /// Renders and compresses a document.
    pub fn of(document: &impl Serialize) -> io::Result<Self> {
        let plain = serde_json::to_vec(document)?;
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&plain)?;
        Ok(Self {
            gzip: Representation::new(encoder.finish()?),
            plain: Representation::new(plain),
        })
    }

    /// Whether to compress. A client that accepts neither form gets the plain one, which is better
    /// than nothing (RFC 9110, 12.5.3).
    fn wants_gzip(request: &HttpRequest) -> bool {
        let supported = [Encoding::gzip(), Encoding::identity()];
        let accepted = AcceptEncoding::parse(request).ok();
        let chosen = accepted.and_then(|accepted| accepted.negotiate(supported.iter()));
        chosen == Some(Encoding::gzip())
    }

    /// The document in the form that a request accepts, or 304 if its client has that.
    pub fn answer(&self, request: &HttpRequest) -> HttpResponse {
        let is_gzip = Self::wants_gzip(request);
        let Representation { body, tag } = if is_gzip { &self.gzip } else { &self.plain };
        let is_known = has(request, tag);
        let mut response = match is_known {
            true => HttpResponse::NotModified(),
            false => HttpResponse::Ok(),
        };
        // It changes with a release: a copy may be kept, and is asked about before each use.
        response
            .insert_header((CACHE_CONTROL, "no-cache"))
            .insert_header((ETAG, tag.to_string()))
            .insert_header((VARY, ACCEPT_ENCODING.as_str()));
        if is_known {
            return response.finish();
        }
        response.content_type("application/json");
        if is_gzip {
            response.insert_header((CONTENT_ENCODING, "gzip"));
        }
        response.body(body.clone())
    }
}

/// The handler of the document, which is the application's data.
pub async fn show(served: web::Data<ServedDocument>, request: HttpRequest) -> HttpResponse {
    served.answer(&request)
}

/// Whether the client has the representation with this tag (RFC 9110, 13.1.2).
fn has(request: &HttpRequest, tag: &EntityTag) -> bool {
    match IfNoneMatch::parse(request) {
        Ok(IfNoneMatch::Any) => true,
        Ok(IfNoneMatch::Items(tags)) => tags.iter().any(|known| known.weak_eq(tag)),
        Err(_) => false,
    }
}
