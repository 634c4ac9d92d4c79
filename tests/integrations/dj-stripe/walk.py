"""dj-stripe, unmodified, in a Django: it copies an account by requests and by webhooks.

Its model AccountV2 is left out: it asks Stripe itself.
"""

import os
import threading
import uuid
from collections import Counter
from contextlib import contextmanager
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import StringIO
from queue import Queue

import django
import requests
import stripe
from django.apps import apps
from django.conf import settings
from django.core.management import call_command
from django.test import Client
from django.urls import include, path


def ask(method, path, key, /, **parameters):
    """Asks charge-once at its own address."""
    headers = {"authorization": f"Bearer {key}", "idempotency-key": str(uuid.uuid4())}
    url = os.environ["CHARGE_ONCE_URL"] + path
    reply = requests.request(method, url, headers=headers, json=parameters, timeout=30)
    assert reply.ok, f"{path}: {reply.status_code} {reply.text}"
    return reply.json()


stripe.api_key = ask("POST", "/test/accounts", os.environ["DEV_API_KEY"])["api_key"]
settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    DJSTRIPE_FOREIGN_KEY_TO_FIELD="id",
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "djstripe"],
    LOGGING={"version": 1, "loggers": {"djstripe": {"level": "CRITICAL"}}},
    # Its tables are made from its models: with SQLite, its migrations take a minute.
    MIGRATION_MODULES={"djstripe": None},
    ROOT_URLCONF=__name__,
    STRIPE_API_HOST=os.environ["CHARGE_ONCE_URL"],
    STRIPE_TEST_SECRET_KEY=stripe.api_key,
)
django.setup()
urlpatterns = [path("stripe/", include("djstripe.urls", namespace="djstripe"))]

from django.contrib.auth.models import User  # noqa: E402 # it needs the settings
from djstripe import event_handlers, models  # noqa: E402

deliveries, processed, handled = Queue(), Counter(), Counter()
post = Client(SERVER_NAME="localhost").post


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        delivery = {"path": self.path, "content_type": "application/json"}
        delivery["headers"] = {"stripe-signature": self.headers["stripe-signature"]}
        delivery["data"] = self.rfile.read(int(self.headers["content-length"]))
        deliveries.put(delivery)
        self.send_response_only(200)
        self.end_headers()


def hand_over_all(**times):
    """Hands what arrives to dj-stripe's view until it has had each event, or so many times."""
    expected = Counter({event.id: 1 for event in stripe.Event.list().auto_paging_iter()} | times)
    while expected - processed:
        delivery = deliveries.get(timeout=30)
        trigger = int(post(**delivery).content)
        processed[models.WebhookEventTrigger.objects.get(pk=trigger, processed=True).event_id] += 1
    assert processed.keys() == expected.keys() and deliveries.empty()
    return delivery


@event_handlers.djstripe_receiver(["charge.succeeded", "charge.refunded"])
def handle(event, **_):
    handled[event.type] += 1


def assert_stored(*rows):
    """That it has just these of their kinds, as the API has them. Deliveries change an event."""
    for model in {type(row) for row in rows}:
        assert set(model.objects.all()) <= set(rows), model.objects.all()
    for row in rows:
        row.refresh_from_db()
        object = ask("GET", f"{row.stripe_class.class_url()}/{row.id}", stripe.api_key)
        differing = {name for name, value in object.items() if row.stripe_data[name] != value}
        assert differing <= {"pending_webhooks"}, (row.stripe_data, object)


def sync(model):
    return [model.sync_from_stripe_data(each) for each in model.api_list()]


@contextmanager
def lost_replies(route):
    """No reply to a request of this route arrives, also none to the retries that the SDK makes."""
    plan = ask("POST", "/test/faults", stripe.api_key, route=route, fault="reply_lost", every=1)
    try:
        yield
        raise AssertionError("a reply arrived")
    except stripe.APIConnectionError:
        ask("DELETE", f"/test/faults/{plan['id']}", stripe.api_key)


@contextmanager
def step(sentence):
    print(f"  {sentence}: ", end="", flush=True)
    yield
    print("ok", flush=True)


server = HTTPServer(("127.0.0.1", 0), Receiver)
threading.Thread(target=server.serve_forever, daemon=True).start()
call_command("migrate", run_syncdb=True, verbosity=0)
ann = User.objects.create(username="ann", email="ann@example.com")

with step("it makes an endpoint for webhooks, and finds the account of its key"):
    given = {"djstripe_uuid": str(uuid.uuid4())}
    url = "http://127.0.0.1:{}/stripe/webhook/{}/".format(server.server_port, *given.values())
    made = {"url": url, "enabled_events": ["*"], "metadata": given, "connect": False}
    models.WebhookEndpoint.sync_from_stripe_data(models.WebhookEndpoint._api_create(**made))
    assert models.Account.objects.get().stripe_data == ask("GET", "/v1/account", stripe.api_key)

with step("a customer whose creation had no reply is created once: the key is in the database"):
    with lost_replies("POST /v1/customers"):
        models.Customer.get_or_create(ann)
    customer, _ = models.Customer.get_or_create(ann)
    card = customer.add_payment_method("pm_card_visa")
    assert sync(models.Customer) == [customer] and customer.default_payment_method == card
    assert_stored(customer, card)

with step("lists bring what was paid and refunded"):
    ask("POST", "/test/faults", stripe.api_key, event="charge.succeeded", fault="webhook_twice")
    paid = {"customer": customer.id, "payment_method": card.id, "amount": 2150, "currency": "usd"}
    intent = stripe.PaymentIntent.create(**paid, confirm=True, return_url="https://shop.example/")
    stripe.Refund.create(payment_intent=intent.id, amount=500)
    (charge,), (refund,) = sync(models.Charge), sync(models.Refund)
    assert (charge.amount, charge.customer, refund.amount) == (Decimal("21.50"), customer, 500)
    assert_stored(charge, refund, *sync(models.PaymentIntent))

with step("its view processes each event once, also one that arrives twice"):
    delivery = hand_over_all(**{stripe.Event.list(type="charge.succeeded").data[0].id: 2})
    assert handled == {"charge.succeeded": 1, "charge.refunded": 1}, handled
    assert_stored(*models.Event.objects.filter(id__in=processed))
    assert post(**delivery | {"data": delivery["data"] + b" "}).status_code == 400

with step("a partial refund whose reply was lost, and that is ordered again, is made twice"):
    with lost_replies("POST /v1/refunds"):
        charge.refund(Decimal("4.00"))
    again = charge.refund(Decimal("4.00"))
    # Webhooks bring the sum that was refunded, and not the refund.
    hand_over_all()
    assert_stored(charge, refund, again)
    assert [each.amount for each in sync(models.Refund)] == [400, 400, 500]

with step("its command copies anew what was lost, from each list but that of AccountV2"):
    copies = (models.PaymentIntent, models.Charge, models.Refund, models.Event, models.PaymentMethod)
    before = [set(model.objects.values_list("id", flat=True)) for model in copies]
    for model in copies:
        model.objects.all().delete()
    names = [model.__name__ for model in apps.get_app_config("djstripe").get_models()]
    names.remove("AccountV2")
    call_command("djstripe_sync_models", *names, fail_on_error=True, stdout=StringIO())
    assert [set(model.objects.values_list("id", flat=True)) for model in copies] == before
    assert_stored(customer, *models.Charge.objects.all(), *models.Refund.objects.all())

with step("webhooks tell that a card was detached and a customer deleted"):
    stripe.PaymentMethod.detach(card.id)
    stripe.Customer.delete(customer.id)
    hand_over_all()
    customer.refresh_from_db()
    assert customer.date_purged and not models.PaymentMethod.objects.get().customer
