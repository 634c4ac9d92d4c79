"""The calls of pay, the engine of Rails for payments, that make no subscription.

It is written in Ruby. The same requests are sent here, with the same lists of what to expand."""

import threading
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import stripe
from support import RETURN_URL, api_key_of_a_new_account, client, eventually, unique

EXPAND_CHARGE = ["balance_transaction", "payment_intent", "refunds.data.balance_transaction"]
EXPAND_INTENT = [f"latest_charge.{path}" for path in EXPAND_CHARGE]
EXPAND_CUSTOMER = ["tax", "invoice_credit_balance"]

# What Pay listens to, without subscriptions.
EVENTS = [
    "charge.refunded",
    "charge.succeeded",
    "charge.updated",
    "checkout.session.completed",
    "customer.deleted",
    "customer.updated",
    "payment_intent.succeeded",
    "payment_method.attached",
    "payment_method.detached",
    "payment_method.updated",
]


class Pay(unittest.TestCase):
    def setUp(self):
        self.client = client(api_key=api_key_of_a_new_account())
        self.customer = self.post(
            "customers", email="ann@example.com", name="Ann Bo", expand=EXPAND_CUSTOMER
        )["id"]

    def call(self, method, path, **parameters):
        return self.client.raw_request(method, f"/v1/{path}", **parameters).data

    def get(self, path, **parameters):
        return self.call("get", path, **parameters)

    def post(self, path, **parameters):
        return self.call("post", path, idempotency_key=unique("key"), **parameters)

    def save_card(self):
        """As `update_payment_method` does."""
        method = self.post("payment_methods/pm_card_visa/attach", customer=self.customer)
        settings = {"default_payment_method": method["id"]}
        self.post(f"customers/{self.customer}", invoice_settings=settings)
        return method["id"]

    def charge(self, **parameters):
        """As `charge` and `authorize` do."""
        return self.post(
            "payment_intents",
            amount=2000,
            confirm=True,
            currency="usd",
            customer=self.customer,
            expand=EXPAND_INTENT,
            payment_method=self.save_card(),
            return_url=RETURN_URL,
            **parameters,
        )

    def sync(self, charge):
        """As `Pay::Stripe::Charge.sync` does, for each charge with an intent."""
        found = self.get(f"charges/{charge}", expand=EXPAND_CHARGE)
        intent = found["payment_intent"]["id"]
        of = {"type": "payment_intent", "payment_intent": intent}
        invoices = self.get("invoice_payments", payment=of, status="paid")
        self.assertEqual(invoices["data"], [])
        return found

    def test_a_customer_is_made_and_read_with_what_only_stripe_has(self):
        found = self.get(f"customers/{self.customer}", expand=EXPAND_CUSTOMER)
        self.assertEqual((found["email"], found["name"]), ("ann@example.com", "Ann Bo"))
        self.assertFalse(found.get("deleted", False))

    def test_a_saved_card_is_charged_and_the_charge_read(self):
        intent = self.charge()
        self.assertEqual((intent["status"], intent["customer"]), ("succeeded", self.customer))
        self.assertTrue(intent["client_secret"])
        charge = intent["latest_charge"]
        self.assertEqual(charge["payment_intent"]["id"], intent["id"])
        self.assertEqual(charge["refunds"]["data"], [])
        self.assertIsNone(charge["balance_transaction"])

        found = self.sync(charge["id"])
        self.assertEqual((found["amount"], found["amount_refunded"]), (2000, 0))
        self.assertEqual((found["customer"], found["metadata"]), (self.customer, {}))
        self.assertIsNone(found["application_fee_amount"])
        self.assertIsNone(found["receipt_url"])
        details = found["payment_method_details"]
        self.assertEqual((details["type"], details["card"]["brand"]), ("card", "visa"))
        self.assertEqual(details["card"]["last4"], "4242")
        self.assertTrue(details["card"]["exp_month"] and details["card"]["exp_year"])

    def test_a_charge_is_refunded_by_its_id(self):
        charge = self.charge()["latest_charge"]["id"]
        self.assertEqual(self.post("refunds", charge=charge, amount=500)["amount"], 500)
        found = self.sync(charge)
        self.assertEqual(found["amount_refunded"], 500)
        self.assertEqual([refund["amount"] for refund in found["refunds"]["data"]], [500])

    def test_a_charge_is_authorized_and_captured(self):
        held = self.charge(capture_method="manual")
        self.assertEqual(held["status"], "requires_capture")
        captured = self.post(f"payment_intents/{held['id']}/capture", amount_to_capture=1500)
        self.assertEqual((captured["status"], captured["amount_received"]), ("succeeded", 1500))
        self.assertEqual(self.sync(captured["latest_charge"])["amount_captured"], 1500)

    def test_an_intent_is_confirmed_later_and_read_with_its_card(self):
        made = self.post("payment_intents", amount=2000, currency="usd", customer=self.customer)
        card = {"payment_method": self.save_card(), "return_url": RETURN_URL}
        confirmed = self.post(f"payment_intents/{made['id']}/confirm", **card)
        self.assertEqual(confirmed["status"], "succeeded")
        found = self.get(f"payment_intents/{made['id']}", expand=["payment_method"])
        self.assertEqual(found["payment_method"]["card"]["last4"], "4242")

    def test_a_card_is_set_up_found_and_removed(self):
        made = self.post("setup_intents", customer=self.customer, usage="off_session")
        self.assertTrue(made["client_secret"])
        path = f"setup_intents/{made['id']}"
        self.post(f"{path}/confirm", payment_method="pm_card_visa", return_url=RETURN_URL)
        found = self.get(path, expand=["payment_method"])
        self.assertEqual(found["status"], "succeeded")
        method = self.get(f"payment_methods/{found['payment_method']['id']}")
        self.assertEqual((method["type"], method["customer"]), ("card", self.customer))
        detached = self.post(f"payment_methods/{method['id']}/detach")
        self.assertIsNone(detached["customer"])

    def test_all_its_events_arrive(self):
        arrived = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                arrived.append(self.rfile.read(int(self.headers["content-length"])))
                signatures.append(self.headers["stripe-signature"])
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        signatures = []
        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/pay/webhooks/stripe"
        secret = self.post("webhook_endpoints", url=url, enabled_events=EVENTS)["secret"]

        intent = self.charge()
        charge, method = intent["latest_charge"]["id"], intent["payment_method"]
        self.post(f"charges/{charge}", description="tea")
        self.post("refunds", charge=charge)
        self.post(f"payment_methods/{method}", metadata={"shelf": "7"})
        self.post(f"payment_methods/{method}/detach")
        self.call("delete", f"customers/{self.customer}")

        # Nothing here makes a session of Checkout.
        wanted = set(EVENTS) - {"checkout.session.completed"}

        def types():
            events = [
                stripe.Webhook.construct_event(body, signature, secret)
                for body, signature in list(zip(arrived, signatures))
            ]
            return {event.type for event in events} >= wanted

        eventually("all events arrive", types)
