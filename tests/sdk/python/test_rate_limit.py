"""Too many requests are the exception for it, and the SDK's retry gets through."""

import subprocess
import unittest

import stripe
from support import PROGRAM, Server, charges_of, client, order, requires


def limits_rates():
    table = [PROGRAM, "config-table"]
    known = subprocess.run(table, check=True, stdout=subprocess.PIPE, text=True).stdout
    return "`RATE_LIMIT`" in known


@unittest.skipUnless(requires("rate-limit") or limits_rates(), "the service has no rate limit")
class RateLimit(unittest.TestCase):
    def test_too_many_requests_are_a_rate_limit_error_and_the_sdk_s_retry_gets_through(self):
        parameters = order()
        with Server(RATE_LIMIT="2") as server:
            with self.assertRaises(stripe.RateLimitError) as limited:
                for _ in range(100):
                    client(server.url, max_network_retries=0).v1.charges.list()
            self.assertEqual(limited.exception.http_status, 429)
            self.assertEqual(limited.exception.error.code, "rate_limited")
            self.assertEqual(limited.exception.error.type, "rate_limit_error")
            charge = client(server.url).v1.charges.create(parameters)
        self.assertEqual(charges_of(parameters), [charge])
