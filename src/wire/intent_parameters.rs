//! What clients send of payment intents and setup intents alike: how methods are chosen, and where
//! a card's holder returns to.

use url::{Host, Url};
use utoipa::openapi::{ArrayBuilder, SchemaFormat};

use super::{not_offered, prelude::*};
use crate::domain::payment_intent::AllowRedirects;

/// The only type of methods.
const CARD: &str = "card";
/// More types of methods than there are.
const TYPES_MAX: usize = 20;
const TYPE_MAX_CHARS: usize = 100;

/// The longest IPv6 address.
const IP_ADDRESS_MAX_CHARS: usize = 45;
const USER_AGENT_MAX_CHARS: usize = 1000;
/// The last second of the year 9999.
const TIME_MAX: i64 = 253_402_300_799;

/// The longest URL that proxies and servers commonly take.
const RETURN_URL_MAX_CHARS: usize = 2048;

parameters! {
    /// How methods are chosen.
    pub struct AutomaticMethodsParams as "AutomaticPaymentMethodsParam" {
        /// Whether they are chosen automatically.
        enabled: bool,
        /// Whether a card's holder may be sent to another page: always or never. Default: always.
        allow_redirects: Option<AllowRedirects>,
    }

    /// How the card's holder agreed to later payments. It has no effect: there are no mandates.
    pub struct MandateDataParams as "MandateDataInput" {
        /// What the holder did.
        customer_acceptance: Nested<CustomerAcceptanceParams>,
    }

    /// What the card's holder did to agree.
    pub struct CustomerAcceptanceParams as "CustomerAcceptanceInput" {
        /// online or offline.
        r#type: AcceptanceType,
        /// When, in Unix seconds.
        accepted_at: Option<Integer<0, TIME_MAX>>,
        /// From where.
        online: Option<Nested<OnlineAcceptanceParams>>,
    }

    /// From where the card's holder agreed.
    pub struct OnlineAcceptanceParams as "OnlineAcceptanceInput" {
        /// The address of their machine.
        ip_address: Text<IP_ADDRESS_MAX_CHARS, 1>,
        /// Their browser.
        user_agent: Text<USER_AGENT_MAX_CHARS, 1>,
    }
}

/// Where the card's holder agreed.
pub struct AcceptanceType;

impl TextKind for AcceptanceType {
    type Value = ();
    const MUST_BE: &'static str = "Must be online or offline.";

    fn parse(text: &str) -> Option<()> {
        ["online", "offline"].contains(&text).then_some(())
    }

    fn schema() -> ObjectBuilder {
        text().pattern(Some("^(online|offline)$"))
    }
}

/// Whether redirects are allowed where methods are chosen automatically, which is the default;
/// `None`: the client names their types.
pub fn chosen_methods(
    automatic: Option<AutomaticMethodsParams>,
    types: Option<()>,
) -> Result<Option<AllowRedirects>, ApiError> {
    match (automatic, types) {
        (None, None) => Ok(Some(AllowRedirects::default())),
        (Some(automatic), None) if automatic.enabled => {
            Ok(Some(automatic.allow_redirects.unwrap_or_default()))
        }
        (Some(automatic), Some(())) if automatic.enabled => {
            let message = "Send either automatic_payment_methods or payment_method_types.";
            Err(ApiError::invalid("payment_method_types", message))
        }
        (Some(_) | None, _) => Ok(None),
    }
}

/// Refuses a confirmation that doesn't say where the holder returns to, where methods may send them
/// away.
pub fn must_have_return_url(
    redirects: Option<AllowRedirects>,
    return_url: Option<&str>,
) -> Result<(), ApiError> {
    if redirects != Some(AllowRedirects::Always) || return_url.is_some() {
        return Ok(());
    }
    let message = "Missing parameter: return_url. Methods that are chosen automatically may send the \
                   card's holder to another page. If yours can't return, send \
                   automatic_payment_methods[enabled]=true and \
                   automatic_payment_methods[allow_redirects]=never when you create the intent.";
    let error = ApiError::new(ErrorCode::ParameterMissing, message);
    Err(error.with_param("return_url".to_owned()))
}

/// The refusal of what only a confirmation has, in a create that doesn't confirm.
pub fn without_confirm(param: &str) -> ApiError {
    let message = format!("Invalid parameter: {param}. It is only for confirm=true.");
    ApiError::invalid(param, message)
}

/// The refusal of a create that confirms without a method.
pub fn nothing_to_confirm() -> ApiError {
    let message =
        "Missing parameter: payment_method. With confirm=true, send it or payment_method_data.";
    let error = ApiError::new(ErrorCode::ParameterMissing, message);
    error.with_param("payment_method".to_owned())
}

/// The refusal of a `client_secret` that is another intent's.
pub fn wrong_client_secret() -> ApiError {
    let message = "Invalid parameter: client_secret. It is not the secret of this intent.";
    ApiError::invalid("client_secret", message)
}

/// Types of methods, of which there is one. Programs send lists of all that a shop could take, so
/// other types of Stripe's are left out where `card` is among them.
pub struct MethodTypes;

impl ValueKind for MethodTypes {
    type Value = ();

    fn read(field: &mut Field<'_, '_>) -> Result<Option<()>, Error> {
        let types = field
            .fields
            .texts(field.name, 0..=TYPES_MAX, TYPE_MAX_CHARS)?;
        let has_card = types.iter().any(|given| given == CARD);
        let is_left_out = |given: &str| has_card && not_offered::methods().contains(&given);
        let is_wrong = |given: &String| given != CARD && !is_left_out(given);
        match types.iter().position(is_wrong) {
            None => Ok(has_card.then_some(())),
            Some(index) => {
                let message =
                    "Only card is simulated here. Other types of Stripe's may stand beside it.";
                Err(field.fields.invalid_element(field.name, index, message))
            }
        }
    }

    fn schema() -> RefOr<Schema> {
        let card = text().pattern(Some(format!("^{CARD}$")));
        ArrayBuilder::new()
            .items(with_example(card, CARD))
            .max_items(Some(TYPES_MAX))
            .description(Some(
                "Types of methods. Other types of Stripe's beside card are left out.",
            ))
            .into()
    }
}

/// Where a card's holder returns to: a page of the shop, or its app.
pub struct ReturnUrl;

impl ValueKind for ReturnUrl {
    type Value = String;

    fn read(field: &mut Field<'_, '_>) -> Result<Option<String>, Error> {
        let url = field.fields.text(field.name, RETURN_URL_MAX_CHARS)?;
        let is_app = |scheme: &str| field.fields.is_granted(scheme);
        if url.as_ref().is_some_and(|url| !leads_back(url, is_app)) {
            return Err(field.invalid(
                "Must be an https URL, an http URL of this machine, or the URL of an app, whose scheme \
                 is a domain backwards, as in com.example.shop:/return, or is in RETURN_URL_SCHEMES.",
            ));
        }
        Ok(url)
    }

    fn schema() -> RefOr<Schema> {
        let url = text()
            .max_length(Some(RETURN_URL_MAX_CHARS))
            .format(Some(SchemaFormat::Custom("uri".to_owned())));
        with_example(url, "https://example.com/return").into()
    }
}

/// What registered schemes with a dot begin with that are no app's (IANA), as `vnd.ms.radio`.
const NO_DOMAINS: [&str; 4] = ["iris", "soap", "vnd", "xmlrpc"];

/// Whether a URL leads to a shop or to an app. Systems and browsers have schemes of their own that
/// open programs, settings and files, and no list has all of them. Those of apps are the names of
/// domains, backwards (RFC 8252, section 7.1), and so begin with a top-level domain.
fn leads_back(url: &str, is_app: impl Fn(&str) -> bool) -> bool {
    let Ok(url) = Url::parse(url) else {
        return false;
    };
    match (url.scheme(), url.host()) {
        ("https", _) => true,
        ("http", Some(Host::Domain(name))) => name == "localhost" || name.ends_with(".localhost"),
        ("http", Some(Host::Ipv4(address))) => address.is_loopback(),
        ("http", Some(Host::Ipv6(address))) => address.is_loopback(),
        ("http", None) => false,
        (app, _) => is_domain_backwards(app) || is_app(app),
    }
}

fn is_domain_backwards(scheme: &str) -> bool {
    scheme.split_once('.').is_some_and(|(top, _)| {
        top.len() > 1
            && top.bytes().all(|byte| byte.is_ascii_lowercase())
            && !NO_DOMAINS.contains(&top)
    })
}

/// Stripe.js would carry out what a card's holder has to do.
pub struct UseStripeSdk;

impl NeverTrue for UseStripeSdk {
    const WHY: &'static str =
        "Stripe.js can't be pointed at this service. Open next_action.redirect_to_url.url.";
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_holder_returns_to_a_shop_or_an_app_and_to_nothing_that_a_system_opens() {
        let leads_back = |url: &str| super::leads_back(url, |scheme| scheme == "shop-app");
        for good in [
            "https://shop.example/return?cart=1",
            "HTTPS://shop.example",
            "http://localhost:3000",
            "http://shop.localhost/",
            "http://127.0.0.2/return",
            "http://[::1]:8080",
            "shop-app://return",
            "SHOP-APP:return",
            "com.example.shop:/return",
        ] {
            assert!(leads_back(good), "{good}");
        }
        let schemes = "javascript JavaScript \tjavascript data file vbscript about blob ftp \
            filesystem view-source chrome ms-msdt search-ms ms-settings ms-word \
            ms-officecmd intent android-app market chrome-extension moz-extension \
            resource jar tel sms mailto facetime itms-services ssh telnet smb ldap ws \
            wss steam zoommtg shop-app2 x-apple.systempreferences x.shop vnd.ms.radio \
            soap.beep z39.50r";
        for scheme in schemes.split(' ') {
            for rest in [":x", "://shop.example/"] {
                assert!(!leads_back(&format!("{scheme}{rest}")), "{scheme}{rest}");
            }
        }
        for bad in [
            "shop.example",
            "/return",
            "https://",
            "http://shop.example/",
            "http://localhost.shop.example/",
            "http://10.0.0.1/",
            "http://0.0.0.0/",
        ] {
            assert!(!leads_back(bad), "{bad}");
        }
    }
}
