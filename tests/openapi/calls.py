"""Calls every operation of the OpenAPI document through the client that openapi-python-client made of it.

Every reply must be parsed into a type of the document, and that type must hold all of the reply.
"""

import importlib
import json
import os
import re
import sys
import uuid

import generated.models
from generated import AuthenticatedClient

with open(sys.argv[1], encoding="utf-8") as file:
    DOCUMENT = json.load(file)

OPERATIONS = {
    operation["operationId"]: operation
    for item in DOCUMENT["paths"].values()
    for operation in item.values()
}

CLIENT = AuthenticatedClient(
    base_url=os.environ["CHARGE_ONCE_URL"], token=os.environ["DEV_API_KEY"], timeout=20
)
# The letter before each number keeps digits and dashes from forming a card number.
RUN = f"run-{uuid.uuid4().hex}"
called = set()


def python_name(name):
    return re.sub(r"(?<=[a-z])(?=[A-Z])|\W+", "_", name).lower()


def call(operation_id, *path, body=None, status=(200, 201), **parameters):
    """Calls an operation, with the example of its body and a new key unless these are given. None leaves a member out."""
    operation = OPERATIONS[operation_id]
    called.add(operation_id)
    module = importlib.import_module(
        f"generated.api.{python_name(operation['tags'][0])}.{python_name(operation_id)}"
    )
    if any(parameter["name"] == "Idempotency-Key" for parameter in operation.get("parameters", [])):
        parameters.setdefault("idempotency_key", f"{RUN}-n{len(called)}-{uuid.uuid4().hex}")
    if "requestBody" in operation:
        reference = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
        name = reference.rsplit("/", 1)[1]
        example = DOCUMENT["components"]["schemas"][name]["example"]
        model = getattr(generated.models, name)
        members = {**example, **(body or {})}
        parameters["body"] = model.from_dict({name: value for name, value in members.items() if value is not None})

    reply = module.sync_detailed(*path, client=CLIENT, **parameters)

    assert reply.status_code in status, f"{operation_id}: {reply.status_code} {reply.content}"
    if reply.parsed is None:
        response = operation["responses"][str(int(reply.status_code))]
        assert "content" not in response, f"{operation_id}: the reply has no type"
        return None
    is_error = isinstance(reply.parsed, generated.models.Error)
    assert is_error == (reply.status_code >= 400), f"{operation_id}: {type(reply.parsed)}"
    assert reply.parsed.to_dict() == json.loads(reply.content), f"{operation_id}: {reply.content}"
    # An empty list would tell nothing of what it holds. Of one, nothing is ever held.
    is_never_filled = operation_id == "listInvoicePayments"
    assert is_never_filled or getattr(reply.parsed, "data", None) != [], f"{operation_id}: nothing is listed"
    return reply.parsed


def call_all():
    models = generated.models
    assert call("retrieveAccount").charges_enabled
    call("livez")
    call("readyz")
    assert call("retrieveIdempotencyPolicy").scope == "account"

    # Before what it is told of. The name never has an address (RFC 2606).
    everything = {"url": "https://example.invalid/", "enabled_events": ["*"]}
    endpoint = call("createWebhookEndpoint", body=everything)
    call("retrieveWebhookEndpoint", endpoint.id)
    call("listWebhookEndpoints")

    key = f"{RUN}-charge"
    charge = call("createCharge", idempotency_key=key, idempotency_workflow=RUN)
    call("createCharge", body={"source": "tok_chargeDeclined"}, status=(402,))
    call("updateCharge", charge.id)
    call("retrieveIdempotencyKey", key)
    call("lookUpIdempotencyKey", key=key)
    assert call("abandonIdempotencyKey", f"{RUN}-late").status == "abandoned"
    call("listWorkflow", RUN)
    call("lookUpWorkflow", name=RUN)
    held = call("createCharge", body={"capture": False})
    call("captureCharge", held.id)

    refund = call("createRefund", body={"charge": charge.id})
    assert refund.charge == charge.id, refund
    rest = call("createRefund", body={"charge": charge.id, "amount": None, "expand": ["charge"]})
    assert isinstance(rest.charge, models.Charge), rest
    call("updateRefund", refund.id)
    call("retrieveRefund", refund.id)
    expanded = call("listRefunds", expand=[models.ExpandRefunds.DATA_CHARGE])
    assert isinstance(expanded.data[0].charge, models.Charge), expanded
    call("listRefundsOfCharge", charge.id)
    with_refunds = call("retrieveCharge", charge.id, expand=[models.ExpandCharge.REFUNDS])
    assert len(with_refunds.refunds.data) == 2, with_refunds
    call("listCharges", expand=[models.ExpandCharges.DATA_REFUNDS])
    call("listInvoicePayments")

    customer = call("createCustomer")
    call("updateCustomer", customer.id)
    call("retrieveCustomer", customer.id)
    call("listCustomers", email=customer.email)
    call("searchCustomers", query=f"email:'{customer.email}'")
    method = call("createPaymentMethod")
    assert call("retrievePaymentMethod", method.id).customer is None, method
    call("attachPaymentMethod", method.id, body={"customer": customer.id})
    call("attachPaymentMethod", "pm_card_chargeDeclined", body={"customer": customer.id}, status=(402,))
    call("updatePaymentMethod", method.id)
    expanded = call(
        "listPaymentMethods",
        customer=customer.id,
        expand=[models.ExpandPaymentMethods.DATA_CUSTOMER],
    )
    assert isinstance(expanded.data[0].customer, models.Customer), expanded
    call("listPaymentMethodsOfCustomer", customer.id)
    call("retrievePaymentMethodOfCustomer", customer.id, method.id)
    call("detachPaymentMethod", method.id)
    call("deleteCustomer", customer.id)
    call("retrieveCustomer", customer.id)

    order = call("createOrder")
    call("updateOrder", order.id)
    call("payOrder", order.id)
    call("retrieveOrder", order.id)
    call("listOrders")
    call("cancelOrder", call("createOrder", body={"client_order_id": RUN}).id)

    intent = call("createPaymentIntent", body={"capture_method": "manual"})
    call("updatePaymentIntent", intent.id)
    declining = {"payment_method": "pm_card_chargeDeclined"}
    call("confirmPaymentIntent", intent.id, body=declining, status=(402,))
    assert call("confirmPaymentIntent", intent.id).status == "requires_capture", intent
    call("capturePaymentIntent", intent.id)
    call("cancelPaymentIntent", intent.id, status=(400,))
    call("cancelPaymentIntent", call("createPaymentIntent").id)
    call("createRefund", body={"charge": None, "payment_intent": intent.id})
    whole = call("retrievePaymentIntent", intent.id, expand=[models.ExpandPaymentIntent.LATEST_CHARGE])
    assert isinstance(whole.latest_charge, models.Charge), whole
    call("listPaymentIntents")

    setup = call("createSetupIntent")
    assert setup.status == "succeeded", setup
    call("createSetupIntent", body={"payment_method": "pm_card_chargeDeclined"}, status=(402,))
    begun = call("createSetupIntent", body={"confirm": None, "return_url": None})
    call("updateSetupIntent", begun.id)
    call("confirmSetupIntent", begun.id, body={"payment_method": "pm_card_threeDSecure2Required"})
    call("cancelSetupIntent", begun.id)
    whole = call("retrieveSetupIntent", setup.id, expand=[models.ExpandSetupIntent.PAYMENT_METHOD])
    assert isinstance(whole.payment_method, models.PaymentMethod), whole
    call("listSetupIntents")

    call("setInventory", "mug")
    call("retrieveInventory", "mug")
    call("listInventory")
    checkout = call("createCheckout")
    call("retrieveCheckout", checkout.id)
    call("listCheckouts")

    event = call("listEvents").data[0]
    call("retrieveEvent", event.id)
    call("listWebhookDeliveries", endpoint.id)
    call("updateWebhookEndpoint", endpoint.id)
    call("deleteWebhookEndpoint", endpoint.id)

    call("createTestAccount")
    call("expireKeys")
    plan = call("createFaultPlan", body={"route": "/orders"})
    assert [one.id for one in call("listFaultPlans").data] == [plan.id], plan
    call("deleteFaultPlan", plan.id)
    assert call("retrieveReport").requests > 0


call_all()
missing = OPERATIONS.keys() - called
assert not missing, f"tests/openapi/calls.py doesn't call: {', '.join(sorted(missing))}"
print(f"client-test: all {len(called)} operations can be called, and their replies read")
