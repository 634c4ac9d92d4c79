"""Every error is the exception that code written for Stripe catches."""

import json
import re
import unittest
from http.client import HTTPConnection
from operator import attrgetter
from pathlib import Path
from urllib.parse import urlsplit

import stripe
from support import URL, charges_of, client, is_replay, order, unique

TABLE = Path(__file__).parent.parent / "errors.json"


class Errors(unittest.TestCase):
    def assert_raises(self, row):
        # Another test covers retries.
        v1 = client(max_network_retries=0).v1
        arguments = [row["id"]] if "id" in row else []
        options = row.get("options", {})
        with self.assertRaises(stripe.StripeError) as raised:
            attrgetter(row["do"])(v1)(*arguments, row.get("with", {}), options)
        error = raised.exception
        told = error.error.to_dict()
        self.assertEqual(type(error).__name__, row["raises"])
        self.assertEqual(error.http_status, row["status"])
        if "code" in row:
            self.assertEqual(told["code"], row["code"])
        self.assertEqual(told.get("decline_code"), row.get("decline_code"))
        self.assertEqual(told.get("param"), row.get("param"))
        if row["raises"] in ("CardError", "InvalidRequestError"):
            self.assertEqual(error.code, told["code"])
            self.assertEqual(error.param, row.get("param"))
        self.assertTrue(error.request_id.startswith("req_"))
        self.assertTrue(error.user_message)
        # Of a card that can't be right, there is no charge.
        if row["raises"] == "CardError" and "param" not in row:
            failed = v1.charges.retrieve(told["charge"])
            self.assertEqual((failed.status, failed.paid), ("failed", False))
            self.assertEqual(failed.failure_code, row["code"])

    def test_a_key_reused_for_another_request_is_an_idempotency_error(self):
        parameters, options = order(), {"idempotency_key": unique("key")}
        first = client().v1.charges.create(parameters, options)
        for changed in ({"amount": 2100}, {"currency": "eur"}, {"description": "more"}):
            with self.assertRaises(stripe.IdempotencyError) as reused:
                client().v1.charges.create({**parameters, **changed}, options)
            self.assertEqual(reused.exception.http_status, 400)
            self.assertEqual(reused.exception.error.code, "idempotency_key_reused")
        again = client().v1.charges.create(parameters, options)
        self.assertTrue(is_replay(again))
        self.assertEqual(charges_of(parameters), [first])

    def test_every_path_of_the_sdk_is_served_or_is_told_to_be_not_offered(self):
        sources = Path(stripe.__file__).parent.rglob("*.py")
        texts = (source.read_text(encoding="utf-8") for source in sources)
        paths = {path for text in texts for path in re.findall(r'"(/v[12]/[\w/{}]+)"', text)}
        self.assertGreater(len(paths), 400)
        connection = HTTPConnection(urlsplit(URL).netloc)
        self.addCleanup(connection.close)
        unnamed = []
        for path in sorted(paths):
            # Without an API key: a route that is there answers 401, or 405.
            connection.request("GET", re.sub(r"{\w+}", "x", path))
            told = json.load(connection.getresponse())["error"]
            if told["code"] == "route_not_found" and "offer" not in told["message"]:
                unnamed.append(path)
        self.assertEqual(unnamed, [], "src/wire/not_offered.rs lacks them")

    def test_a_decline_that_is_retried_is_the_same_decline(self):
        parameters = order(source="tok_chargeDeclinedInsufficientFunds")
        options = {"idempotency_key": unique("key")}
        failed = []
        for _ in range(2):
            with self.assertRaises(stripe.CardError) as declined:
                client().v1.charges.create(parameters, options)
            self.assertEqual(declined.exception.error.decline_code, "insufficient_funds")
            failed.append(declined.exception.error.charge)
        self.assertEqual(failed[0], failed[1])
        self.assertEqual([charge.id for charge in charges_of(parameters)], failed[:1])


for row in json.loads(TABLE.read_text()):
    decline = f", {row['decline_code']}" if "decline_code" in row else ""
    param = f", param {row['param']}" if "param" in row else ""
    code = f" {row['code']}" if "code" in row else ""
    name = f"{row['raises']} {row['status']}{code}{decline}{param}: {row['when']}"
    test = lambda self, row=row: self.assert_raises(row)  # noqa: E731
    setattr(Errors, f"test_{name}", test)
