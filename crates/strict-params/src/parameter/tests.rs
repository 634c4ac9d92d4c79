#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use serde_json::{Value, json};
use utoipa::{IntoParams, PartialSchema, ToSchema};

use crate::{
    AnyId, Change, Encoding, Error, Expand, Field, Include, Integer, Kept, Parameter, ParameterSet,
    Params, Reason, Text, expandable,
};

expandable! {
    ExpandOwner, ExpandOwners = ["owner", "owner.home"]: "Shows whole objects.";
}

/// A switch that only some requests may turn on.
struct Debug;

impl Parameter for Debug {
    type Value = bool;

    fn read(field: &mut Field<'_, '_>) -> Result<bool, Error> {
        match <Option<bool> as Parameter>::read(field)? {
            Some(true) if !field.fields.is_granted("debug") => Err(field.invalid("Not for you.")),
            given => Ok(given == Some(true)),
        }
    }

    fn schema(about: String) -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        <bool as Parameter>::schema(about)
    }
}

parameters! {
    /// What may change
    /// of a shelf.
    struct UpdateShelf as "Shelf" {
        /// How high it is.
        height: Integer<1, 9>,
        /// For people.
        label: Change<Text<5>>,
        color: Kept<Text<5, 1>>,
        r#type: Option<AnyId>,
        price: Option<Integer<0, 9>>,
        sold: Option<bool>,
        expand: Expand<ExpandOwner>,
        debug: Debug,
    }
    example {"height": 2}
}

parameters! {
    /// What is written on a shelf.
    struct Label {
        /// For people.
        label: Change<Text<5>>,
        height: Integer<1, 9>,
    }
}

parameters! {
    /// A shelf, with what is written on it.
    struct Labeled {
        written: Include<Label>,
        sold: Option<bool>,
    }
}

#[test]
fn an_included_set_is_read_and_described_as_if_it_stood_there() {
    let parse = |body: Value| Labeled::parse(&params(&body));
    let labeled = parse(json!({"label": "mugs", "height": 2, "sold": true})).unwrap();
    assert_eq!(labeled.written.label, Change::Set("mugs".to_owned()));
    assert_eq!((labeled.written.height, labeled.sold), (2, Some(true)));
    for (wrong, param) in [
        (json!({"sold": true}), "height"),
        (json!({"height": 10}), "height"),
        (json!({"height": 1, "written": {}}), "written"),
    ] {
        assert_eq!(parse(wrong).unwrap_err().param.as_deref(), Some(param));
    }
    let schema = serde_json::to_value(Labeled::schema()).unwrap();
    assert_eq!(schema["required"], json!(["height"]));
    assert_eq!(schema["properties"]["label"]["description"], "For people.");
    let names: Vec<_> = schema["properties"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["height", "label", "sold"]);
    let in_query = Labeled::into_params(|| None).into_iter();
    let in_query: Vec<_> = in_query.map(|parameter| parameter.name).collect();
    assert_eq!(in_query, ["label", "height", "sold"]);
}

parameters! {
    /// How shelves are listed.
    struct ListShelves {
        expand: Expand<ExpandOwners>,
    }
}

fn params(body: &Value) -> Params {
    Params::new(Encoding::Json, Ok(body.as_object().unwrap().clone()))
}

fn parse(body: Value) -> Result<UpdateShelf, (Reason, Option<String>)> {
    UpdateShelf::parse(&params(&body)).map_err(|error| (error.reason, error.param))
}

#[test]
fn parameters_are_checked_in_the_order_of_their_declaration() {
    use Reason::{Invalid, Missing, Unknown};
    for (body, reason, param) in [
        (json!({"label": "too long", "x": 1}), Missing, "height"),
        (json!({"height": 10, "label": 1}), Invalid, "height"),
        (json!({"height": 1, "label": 1, "x": 1}), Invalid, "label"),
        (json!({"height": 1, "color": null}), Invalid, "color"),
        (json!({"height": 1, "price": ""}), Invalid, "price"),
        (json!({"height": 1, "sold": null}), Invalid, "sold"),
        (json!({"height": 1, "expand": null}), Invalid, "expand"),
        (
            json!({"height": 1, "expand": ["shop"]}),
            Invalid,
            "expand[0]",
        ),
        (json!({"height": 1, "debug": true}), Invalid, "debug"),
        (json!({"height": 1, "hight": 1}), Unknown, "hight"),
    ] {
        let refused = parse(body.clone()).unwrap_err();
        assert_eq!(refused, (reason, Some(param.to_owned())), "{body}");
    }
}

#[test]
fn an_update_keeps_unsets_or_sets() {
    let bare = parse(json!({"height": 1})).unwrap();
    assert_eq!((bare.label, bare.color), (Change::Keep, None));
    assert_eq!((bare.height, bare.r#type), (1, None));
    assert!(bare.expand.is_empty());
    for nothing in [json!(null), json!("")] {
        let unset = parse(json!({"height": 1, "label": nothing})).unwrap();
        assert_eq!(unset.label.apply(Some("old".to_owned())), None);
    }
    let set = json!({"height": 1, "label": "new", "type": "a", "expand": ["owner.home"]});
    let set = parse(set).unwrap();
    assert_eq!(set.label, Change::Set("new".to_owned()));
    assert_eq!(set.r#type.as_deref(), Some("a"));
    assert_eq!(set.expand.under("shop"), None);
    let owner = set.expand.under("owner").unwrap();
    assert_eq!(owner.0, ["home"]);
    let home = owner.under("home").unwrap();
    assert!(home.is_empty() && home.under("home").is_none());
}

#[test]
fn a_list_names_what_it_expands_behind_data() {
    let list = |path: &str| {
        let params = params(&json!({"expand": [path]}));
        ListShelves::parse(&params).map(|list| list.expand.0)
    };
    assert_eq!(list("data.owner.home").unwrap(), ["owner.home"]);
    let refused = list("owner").unwrap_err();
    assert_eq!(refused.param.as_deref(), Some("expand[0]"));
    assert!(refused.message.contains("data.owner, data.owner.home"));
}

#[test]
fn what_is_granted_is_granted_to_one_request_and_a_body_without_a_tree_is_refused() {
    let mut params = params(&json!({"height": 1, "debug": true}));
    params.grant("debug", true);
    let shelf = UpdateShelf::parse(&params).unwrap();
    assert!(shelf.debug);
    assert_eq!((shelf.price, shelf.sold), (None, None));
    let params = Params::new(Encoding::Json, Err(Error::malformed(None, "No JSON.")));
    let refused = UpdateShelf::parse(&params).unwrap_err();
    assert_eq!(refused, Error::malformed(None, "No JSON."));
}

#[test]
fn the_document_says_what_is_checked() {
    assert_eq!(UpdateShelf::name(), "Shelf");
    let schema = serde_json::to_value(UpdateShelf::schema()).unwrap();
    let expand = json!({
        "type": "array", "description": "References to expand in the reply.",
        "maxItems": 20, "items": {"$ref": "#/components/schemas/ExpandOwner"},
    });
    let whole = json!({
        "type": "object", "description": "What may change\nof a shelf.", "required": ["height"],
        "properties": {
            "height": {
                "type": "integer", "format": "int64", "minimum": 1, "maximum": 9,
                "description": "How high it is.",
            },
            "label": {"type": ["string", "null"], "maxLength": 5, "description": "For people."},
            "color": {"type": "string", "minLength": 1, "maxLength": 5},
            "type": {
                "type": ["string", "null"], "pattern": "^[a-z]+_[0-7][0-9a-hjkmnp-tv-z]{25}$",
            },
            "price": {"type": "integer", "format": "int64", "minimum": 0, "maximum": 9},
            "sold": {"type": "boolean"},
            "expand": expand,
            "debug": {"type": "boolean"},
        },
        "example": {"height": 2}, "additionalProperties": false,
    });
    assert_eq!(schema, whole);
    let query = serde_json::to_value(UpdateShelf::into_params(|| None)).unwrap();
    let names = query.as_array().unwrap().iter();
    let names: Vec<_> = names.map(|one| one["name"].as_str().unwrap()).collect();
    let expected = "height label color type price sold expand[] debug";
    assert_eq!(names.join(" "), expected);
    assert_eq!(query[0]["required"], true);
    assert_eq!(query[0]["description"], "How high it is.");
}

#[test]
fn kept_parameters_weigh_hardly_more_than_their_body() {
    for (name, text) in [("a", "\u{1}"), ("a", "\""), ("a", "\\"), ("a", "\u{7f}")] {
        let body = format!("{name}={}", text.repeat(60_000));
        let tree = Encoding::Form.decode(body.as_bytes(), &[]);
        let params = Params::new(Encoding::Form, tree);
        let (weight, most) = (params.weight(), body.len() + 10);
        assert!((60_000..=most).contains(&weight), "{text:?}: {weight}");
    }
}
