#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use serde_json::{Value, json};
use utoipa::{Modify, PartialSchema, ToSchema, openapi::OpenApi};

use crate::openapi::{
    ExampleKeys, FormBodies, References, ReplyHeader, SharedResponses, describe_headers,
    has_parameter, list_header, names, operations, shared,
};

/// A document with one schema, and operations that create and list it.
fn document() -> OpenApi {
    let mug = json!({"type": "object", "properties": {"color": {"type": "string"}}});
    let key = json!({
        "name": "Idempotency-Key", "in": "header", "required": true, "schema": {"type": "string"},
    });
    let body = json!({
        "type": "object", "required": ["labels"],
        "properties": {
            "labels": {"type": "array", "items": {"type": "string"}},
            "parts": {"type": "array", "items": {"type": "object"}},
            "maker": {"oneOf": [{"type": "string"}, {"type": "object"}]},
            "color": {"type": "string"},
        },
        "example": {"labels": ["blue"]},
    });
    let operation = |id: &str, body: Value| {
        json!({
            "operationId": id, "parameters": [key], "responses": {"409": {"description": "busy"}},
            "requestBody": {"content": {"application/json": {"schema": body}}},
        })
    };
    let list = json!({"type": "object", "properties": {
        "data": {"type": "array", "items": mug}, "first": mug, "by_name": {
            "type": "object", "additionalProperties": mug,
        },
    }});
    let document = json!({
        "openapi": "3.1.0", "info": {"title": "Mugs", "version": "1"},
        "paths": {"/mugs": {
            "post": operation("createMug", body),
            "patch": operation("updateMug", json!({"$ref": "#/components/schemas/Mug"})),
            "get": {"operationId": "listMugs", "responses": {}},
        }},
        "components": {"schemas": {"Mug": mug, "MugList": list}},
    });
    serde_json::from_value(document).unwrap()
}

fn after(modifier: &dyn Modify) -> Value {
    let mut document = document();
    modifier.modify(&mut document);
    serde_json::to_value(document).unwrap()
}

#[test]
fn copies_become_references() {
    let schemas = &after(&References)["components"]["schemas"];
    let mug = json!({"$ref": "#/components/schemas/Mug"});
    let list = &schemas["MugList"]["properties"];
    assert_eq!(list["first"], mug);
    assert_eq!(list["data"]["items"], mug);
    assert_eq!(list["by_name"]["additionalProperties"], mug);
    assert_eq!(schemas["Mug"]["properties"]["color"]["type"], "string");
}

#[test]
fn a_form_writes_lists_with_brackets_and_members_as_deep_objects() {
    let document = after(&FormBodies);
    let body = &document["paths"]["/mugs"]["post"]["requestBody"];
    assert_eq!(body["required"], true);
    let form = &body["content"]["application/x-www-form-urlencoded"];
    assert_eq!(form["schema"]["required"], json!(["labels[]"]));
    assert_eq!(form["schema"]["example"], json!({"labels[]": ["blue"]}));
    let encoded: Vec<_> = form["encoding"].as_object().unwrap().keys().collect();
    assert_eq!(encoded, ["maker", "parts"]);
    assert_eq!(form["encoding"]["parts"]["style"], "deepObject");
    // Nothing is required here, so the whole body may be missing.
    let body = &document["paths"]["/mugs"]["patch"]["requestBody"];
    assert_eq!(body["required"], false);
    let form = &body["content"]["application/x-www-form-urlencoded"]["schema"];
    assert_eq!(form["properties"]["color"]["type"], "string");
}

#[test]
fn each_operation_has_an_example_key_of_its_own_which_is_always_the_same() {
    let keys = ExampleKeys {
        header: "Idempotency-Key",
    };
    let document = after(&keys);
    assert_eq!(document, after(&keys));
    let key = |method: &str| document["paths"]["/mugs"][method]["parameters"][0]["example"].clone();
    assert!(key("post").is_string() && key("patch").is_string());
    assert_ne!(key("post"), key("patch"));
}

#[test]
fn replies_and_headers_are_described_once() {
    let mut document = document();
    let header = ReplyHeader {
        name: "Retry-After",
        always: true,
        about: "Seconds.",
        schema: |text| text.pattern(Some("^[0-9]+$")),
    };
    describe_headers(&mut document, &[header]);
    for operation in operations(&mut document) {
        let needs_key = has_parameter(operation, "Idempotency-Key");
        let id = operation.operation_id.as_deref();
        assert_eq!(needs_key, id != Some("listMugs"));
        for response in operation.responses.responses.values_mut() {
            let utoipa::openapi::RefOr::T(described) = response else {
                continue;
            };
            let mut described = described.clone();
            list_header(&mut described, "Retry-After");
            *response = shared(described, "Busy".to_owned()).into();
        }
    }
    SharedResponses.modify(&mut document);
    let document = serde_json::to_value(document).unwrap();
    for method in ["post", "patch"] {
        let reply = &document["paths"]["/mugs"][method]["responses"]["409"];
        assert_eq!(*reply, json!({"$ref": "#/components/responses/Busy"}));
    }
    let described = json!({
        "description": "busy",
        "headers": {"Retry-After": {"$ref": "#/components/headers/Retry-After"}},
    });
    let components = &document["components"];
    assert_eq!(components["responses"], json!({"Busy": described}));
    let header = &components["headers"]["Retry-After"];
    assert_eq!(header["required"], true);
    assert_eq!(header["description"], "Seconds.");
}

/// Knows nothing of JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Color {
    Red,
    Blue,
}

impl Color {
    const ALL: &'static [Self] = &[Self::Red, Self::Blue];

    fn as_str(self) -> &'static str {
        match self {
            Self::Red => "red",
            Self::Blue => "blue",
        }
    }
}

names! {
    pub(crate) ColorView of Color: "What it looks like.";
}

#[test]
fn an_enum_is_shown_by_its_names() {
    let shown = serde_json::to_value(ColorView(Color::Blue)).unwrap();
    assert_eq!(shown, "blue");
    assert_eq!(ColorView::name(), "Color");
    let schema = serde_json::to_value(ColorView::schema()).unwrap();
    let expected = json!({
        "type": "string", "description": "What it looks like.", "enum": ["red", "blue"],
    });
    assert_eq!(schema, expected);
}

#[actix_web::test]
async fn a_document_is_served_in_the_form_that_a_client_accepts_and_once() {
    use actix_web::{App, body::to_bytes, test, web};

    use crate::openapi::served::{ServedDocument, show};

    let served = ServedDocument::of(&document()).unwrap();
    let app = App::new()
        .app_data(web::Data::new(served))
        .route("/", web::get().to(show));
    let app = test::init_service(app).await;
    let get = |name: &'static str, value: String| {
        let request = test::TestRequest::get().insert_header((name, value));
        test::call_service(&app, request.to_request())
    };
    let gzip = get("accept-encoding", "gzip".to_owned()).await;
    assert_eq!(gzip.headers().get("content-encoding").unwrap(), "gzip");
    let plain = get("accept-encoding", "br".to_owned()).await;
    assert!(!plain.headers().contains_key("content-encoding"));
    let [tag, other] = [&plain, &gzip].map(|reply| reply.headers().get("etag").unwrap());
    assert_ne!(tag, other);
    let tag = tag.to_str().unwrap().to_owned();
    let body = to_bytes(plain.into_body()).await.unwrap();
    assert_eq!(body, serde_json::to_vec(&document()).unwrap());
    assert_eq!(get("if-none-match", tag).await.status(), 304);
}
