"""What the OpenAPI document can't tell Schemathesis about this API.

Each exclusion is as narrow as its reason: a failure is ignored only if the reply gives that reason.
"""

import collections
import itertools
import json
import os
import random
import re
import uuid
from urllib.parse import quote, urlencode

import requests
import schemathesis
from hypothesis import strategies
from schemathesis.core.failures import AcceptedNegativeData, ServerError
from schemathesis.openapi.checks import RejectedPositiveData

FORM = "application/x-www-form-urlencoded"

# The server's default BODY_LIMIT, in bytes.
BODY_LIMIT = 64 * 1024

# The form of a key, as the document describes it.
KEY = re.compile(r'("?)([\x21\x23-\x2b\x2d-\x5b\x5d-\x7e]{1,255})\1')

# Refusals that depend on earlier requests, not on the form of the request.
STATE = {
    "charge_already_captured",
    "charge_already_refunded",
    "charge_not_captured",
    "capture_amount_too_large",
    "refund_amount_too_large",
    "order_already_paid",
    "order_canceled",
    "out_of_stock",
    "payment_intent_unexpected_state",
    "payment_method_unexpected_state",
    "setup_intent_unexpected_state",
}

# Parameters whose value depends on what exists, or on another one: a cursor must be an object of the list, only
# one cursor may be given, a client_order_id may belong to an order with other content, and a customer's default
# payment method must be theirs. Two parameters exclude each other, and some are only for a confirmation. A list
# is asked for one type of event or for several, and for one second or for
# an interval.
FITTING = {
    "starting_after",
    "ending_before",
    "client_order_id",
    "invoice_settings[default_payment_method]",
    "client_secret",
    "payment_method_data",
    "return_url",
    "off_session",
    "mandate_data",
    "use_stripe_sdk",
    "final_capture",
    "types",
    "created",
}
FITTING |= {f"created[{end}]" for end in ("gt", "gte", "lt", "lte")}

# Parameters that refuse the id of a failed charge.
OF_FAILED_CHARGES = {("/refunds", "charge"), ("/charges/{id}/capture", "id")}

# The key that a request gives up.
ABANDON = ("/idempotency-keys/{key}/abandon", "key")

# Errors of a body or a query that can't be decoded. Even a test card's number is forbidden in it,
# because its position is unknown.
UNDECODABLE = {"body_invalid", "parameter_invalid", "card_number_forbidden"}

# Some codes of ISO 4217. JSON Schema has no format for them.
schemathesis.openapi.format(
    "iso-4217", strategies.sampled_from(["usd", "USD", "eur", "Gbp", "jpy", "chf", "kwd"])
)

# The server sends events, so endpoints have an address that never exists (RFC 2606, section 2).
NOWHERE = "https://example.invalid/webhooks"
schemathesis.openapi.format("uri", strategies.just(NOWHERE))

# Operations that an object accepts only once, and how to make a fresh object for each. The largest
# amount allows any amount to be captured or refunded.
CHARGE = {"amount": 99_999_999, "currency": "eur"}
ORDER = {"currency": "eur", "items": [{"quantity": 1, "unit_amount": 100}]}
INTENT = {**CHARGE, "payment_method": "pm_card_visa", "payment_method_types": ["card"]}
METHOD = {"type": "card", "card": {"token": "tok_visa"}}
ONCE = {
    "/charges/{id}/capture": ("charges", {**CHARGE, "capture": False}),
    "/refunds": ("charges", CHARGE),
    "/orders/{id}/pay": ("orders", ORDER),
    "/orders/{id}/cancel": ("orders", ORDER),
    "/payment_intents/{id}/confirm": ("payment_intents", INTENT),
    "/payment_intents/{id}/capture": ("payment_intents", {**INTENT, "capture_method": "manual", "confirm": True}),
    "/payment_intents/{id}/cancel": ("payment_intents", CHARGE),
    "/payment_methods/{id}/attach": ("payment_methods", METHOD),
}

# Keys have a letter beside each number, because digits and dashes may form a card number.
run = uuid.uuid4().hex[:8]
numbers = itertools.count()
chance = random.Random(1)
last_key = "unused"
last_workflow = "unused"
# The latest objects of each kind.
made = collections.defaultdict(lambda: collections.deque(maxlen=20))


@schemathesis.hook
def before_call(context, case, kwargs):
    global last_key, last_workflow
    # Each case is a request of its own. With the key of another case, it would be a retry or a reuse.
    for name, value in list((case.headers or {}).items()):
        if name.lower() == "idempotency-key" and (key := KEY.fullmatch(value)):
            last_key = f"{run}n{next(numbers)}n{key[2]}"[:255]
            case.headers[name] = f"{key[1]}{last_key}{key[1]}"
        if name.lower() == "idempotency-workflow" and (workflow := KEY.fullmatch(value)):
            last_workflow = workflow[2]
    if isinstance(case.body, (dict, list)):
        case.body = with_integers(case.body)
    if isinstance(case.body, dict) and ":" in str(case.body.get("url")):
        case.body = {**case.body, "url": NOWHERE}
    # Most ids should exist. Cases that follow a link already have the id from the earlier reply.
    if is_positive(case) and case.meta.phase.name != "stateful" and chance.random() < 0.75:
        name_what_exists(case)


def name_what_exists(case):
    collection = case.path.split("/")[1]
    if case.method == "POST" and case.path == "/webhook_endpoints" and len(made[collection]) > 10:
        # An account may have only a few of them.
        call("DELETE", f"/{collection}/{made[collection].popleft()}")
    if collection == "idempotency-keys":
        name_it(case, "key", last_key)
    if collection == "workflows":
        name_it(case, "name", last_workflow)
    if "{id}" in case.path and (known := fresh(case.path) or one_of(made[collection])):
        case.path_parameters["id"] = known
    if "{sku}" in case.path and case.method == "GET" and (known := one_of(made[collection])):
        case.path_parameters["sku"] = known
    if isinstance(case.body, dict) and "charge" in case.body:
        if known := fresh(case.path) or one_of(made["charges"]):
            case.body = {**case.body, "charge": known}
    if isinstance(case.body, dict) and "customer" in case.body and collection == "payment_methods":
        if known := one_of(made["customers"]):
            case.body = {**case.body, "customer": known}


def name_it(case, parameter, name):
    """By path or by query, as in the case. A path segment can't be one dot or two dots."""
    quoted = quote(name, safe="")
    if f"{{{parameter}}}" not in case.path:
        case.query[parameter] = name
    elif len(quoted) <= 255 and quoted not in (".", ".."):
        case.path_parameters[parameter] = quoted


def one_of(ids):
    return chance.choice(ids) if ids else None


def fresh(path):
    """A new object, in every second case, for an operation that an object accepts only once."""
    if path not in ONCE or chance.random() < 0.5:
        return None
    collection, body = ONCE[path]
    reply = call("POST", f"/{collection}", json=body)
    reply.raise_for_status()
    return reply.json()["id"]


def call(method, path, **arguments):
    return requests.request(
        method,
        os.environ["CHARGE_ONCE_URL"] + path,
        headers={"Idempotency-Key": f"{run}n{next(numbers)}"},
        auth=(os.environ["DEV_API_KEY"], ""),
        timeout=20,
        **arguments,
    )


@schemathesis.hook
def after_call(context, case, response):
    if response.status_code in (200, 201) and case.path.count("/") == 1:
        reply = response.json()
        for item in reply.get("data", [reply]):
            if "id" in item:
                made[case.path.strip("/")].append(item["id"])
    if response.status_code == 200 and case.method == "PUT":
        made["inventory"].append(case.path_parameters["sku"])


def is_positive(case):
    return case.meta is not None and case.meta.generation.mode.is_positive


def with_integers(value):
    """JSON Schema treats 1.0 as an integer. The server refuses an amount that is written with a
    fraction."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: with_integers(member) for name, member in value.items()}
    if isinstance(value, list):
        return [with_integers(item) for item in value]
    return value


@schemathesis.serializer(FORM)
def form(context, value):
    """`source[number]=…` and `expand[]=…` as in the document, and `items[0][quantity]=…`, for which
    OpenAPI has no style. Forms have no null, so it is left out (RFC 6570, section 2.3)."""
    body = context.case.body
    if not isinstance(body, dict):
        return json.dumps(body).encode()
    pairs = [pair for name, member in body.items() for pair in flat(name, member)]
    return urlencode(pairs).encode()


def flat(name, value):
    if isinstance(value, dict):
        for key, member in value.items():
            yield from flat(f"{name}[{key}]", member)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from flat(name if name.endswith("[]") else f"{name}[{index}]", item)
    elif value is not None:
        yield name, value if isinstance(value, str) else json.dumps(value)


@schemathesis.hook
def filter_failure(context, failure, case, response):
    """Whether the failure counts."""
    error = error_of(response)
    sent = [*members(case.path_parameters or {}), *members(case.query or {}), *members(case.body)]
    if isinstance(failure, RejectedPositiveData):
        return not is_refused_for_a_reason(case, response, error, sent)
    if isinstance(failure, AcceptedNegativeData) and response.status_code == 402:
        # What can't be a card is refused with the status of a decline, as at Stripe.
        return False
    if isinstance(failure, AcceptedNegativeData) and case.method == "DELETE":
        # Without a key, a DELETE reads no header that belongs to one.
        return "Idempotency-Key" in case.headers
    if isinstance(failure, AcceptedNegativeData):
        # An empty value of any type is absent. In a form, a number is text.
        is_empty = any(value in ("", None, [], {}) for value in sent)
        return not (is_empty or (case.media_type == FORM and has_number(case.body, "metadata")))
    if isinstance(failure, ServerError):
        # This token simulates a processor that is down.
        return not (error.get("code") == "service_unavailable" and "tok_outage" in sent)
    return True


def is_refused_for_a_reason(case, response, error, sent):
    code, param = error.get("code"), error.get("param")
    body = response.request.body or b""
    return (
        code in STATE
        or (code == "parameter_invalid" and param in FITTING)
        # A request doesn't give its own key up.
        or (code == "parameter_invalid" and (case.path, param) == ABANDON)
        # A parameter may name what isn't there.
        or code == "resource_missing"
        # Of a DELETE, Schemathesis tries a version that the document's pattern doesn't allow.
        or (param == "Stripe-Version" and case.headers.get(param) == "0")
        # One of two parameters must be there.
        or (code == "parameter_missing" and (case.path, param) == ("/refunds", "charge"))
        # It must be there if the intent's methods are chosen automatically.
        or (code == "parameter_missing" and param == "return_url")
        # A confirmation needs a method.
        or (code == "parameter_missing" and (case.path, param) == ("/setup_intents", "payment_method"))
        # An address without parts is none.
        or (code == "parameter_missing" and param == "shipping[address]")
        # A declined charge has no money to capture or refund.
        or (code == "parameter_invalid" and (case.path, param) in OF_FAILED_CHARGES)
        # The number of endpoints is limited.
        or (code == "parameter_invalid" and param is None and case.path == "/webhook_endpoints")
        # The total of an order: JSON Schema has no sums.
        or (code in ("parameter_invalid", "amount_too_large") and param == "items")
        # PostgreSQL stores no NUL. The document would need a pattern for every string.
        or (code in UNDECODABLE and any("\0" in str(value) for value in sent))
        # Members within their limits can exceed the limit of the whole.
        or (code == "body_too_large" and len(body) > BODY_LIMIT)
        # A name with brackets is possible in JSON, and not in a form.
        or (code in UNDECODABLE and case.media_type == FORM and has_bracketed_name(case.body))
    )


def error_of(response):
    try:
        return response.json().get("error", {})
    except (ValueError, AttributeError):
        return {}


def members(value):
    """Every name in it, and every value without members."""
    if isinstance(value, dict):
        for name, member in value.items():
            yield name
            yield from members(member) if member else [member]
    elif isinstance(value, list):
        for item in value:
            yield from members(item) if item else [item]
    else:
        yield value


def has_bracketed_name(value):
    if isinstance(value, dict):
        return any("[" in name or "]" in name or has_bracketed_name(value[name]) for name in value)
    return isinstance(value, list) and any(has_bracketed_name(item) for item in value)


def has_number(body, name):
    value = body.get(name) if isinstance(body, dict) else None
    return any(isinstance(member, (int, float)) for member in members(value))
