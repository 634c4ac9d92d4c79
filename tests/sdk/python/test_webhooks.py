"""What the service delivers is what the SDK's own check of signatures accepts."""

import threading
import time
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from unittest import mock

import stripe
from support import api_key_of_a_new_account, client, eventually, order, requires


class Receiver:
    """A web server that keeps what is posted to it."""

    def __init__(self):
        deliveries = self.deliveries = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                deliveries.append((body, self.headers["stripe-signature"]))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = "http://127.0.0.1:%d/hook" % self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def has_webhooks():
    try:
        client().v1.webhook_endpoints.list()
    except stripe.InvalidRequestError as error:
        return error.http_status != 404
    return True


@unittest.skipUnless(requires("webhooks") or has_webhooks(), "the service has no webhooks")
class Webhooks(unittest.TestCase):
    def test_a_delivered_event_verifies_and_a_tampered_or_stale_one_does_not(self):
        v1 = client(api_key=api_key_of_a_new_account()).v1
        with Receiver() as receiver:
            wanted = {"url": receiver.url, "enabled_events": ["charge.succeeded"]}
            endpoint = v1.webhook_endpoints.create(wanted)
            self.assertTrue(endpoint.secret.startswith("whsec_"))
            charge = v1.charges.create(order())
            eventually("a delivery", lambda: receiver.deliveries)
        body, signature = receiver.deliveries[0]

        event = stripe.Webhook.construct_event(body, signature, endpoint.secret)
        self.assertEqual(event.type, "charge.succeeded")
        self.assertEqual(event.data.object.id, charge.id)
        self.assertEqual(v1.events.retrieve(event.id).data.object, event.data.object)

        tampered = body.replace(b"2000", b"2001")
        self.assertNotEqual(tampered, body)
        self.assert_refused(tampered, signature, endpoint.secret)
        self.assert_refused(body, signature, "whsec_of_somebody_else")
        self.assert_refused(body, signature.replace("t=", "t=1"), endpoint.secret)

        now = time.time()
        for age, accepted in ((240, True), (360, False)):
            with mock.patch("time.time", lambda age=age: now + age):
                if accepted:
                    stripe.Webhook.construct_event(body, signature, endpoint.secret)
                else:
                    self.assert_refused(body, signature, endpoint.secret)

    def assert_refused(self, body, signature, secret):
        with self.assertRaises(stripe.SignatureVerificationError):
            stripe.Webhook.construct_event(body, signature, secret)

    def test_an_endpoint_is_created_retrieved_updated_listed_and_deleted(self):
        v1 = client(api_key=api_key_of_a_new_account()).v1
        wanted = {"url": "https://example.com/hook", "enabled_events": ["*"]}
        endpoint = v1.webhook_endpoints.create({**wanted, "description": "mine"})
        self.assertIs(type(endpoint), stripe.WebhookEndpoint)
        found = v1.webhook_endpoints.retrieve(endpoint.id)
        self.assertEqual((found.url, found.enabled_events), (wanted["url"], ["*"]))
        for disabled, status in ((True, "disabled"), (False, "enabled")):
            change = {"disabled": disabled, "description": status}
            updated = v1.webhook_endpoints.update(endpoint.id, change)
            self.assertEqual((updated.status, updated.description), (status, status))
        listed = v1.webhook_endpoints.list().auto_paging_iter()
        self.assertEqual([endpoint.id for endpoint in listed], [endpoint.id])
        deleted = v1.webhook_endpoints.delete(endpoint.id)
        self.assertEqual((deleted.id, deleted.deleted), (endpoint.id, True))
        with self.assertRaises(stripe.InvalidRequestError) as gone:
            v1.webhook_endpoints.retrieve(endpoint.id)
        self.assertEqual(gone.exception.http_status, 404)
