"""The promise: a request that is retried, by the SDK or by its caller, charges once."""

import threading
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

import stripe
from support import (
    Network,
    Server,
    charges_of,
    client,
    eventually,
    headers,
    is_in_flight,
    is_replay,
    order,
    unique,
)


class Retries(unittest.TestCase):
    def test_a_reply_lost_after_the_commit_is_replayed_to_the_retry_under_an_automatic_key(self):
        parameters = order()
        with Network(lose_replies=1) as network:
            charge = client(network.url).v1.charges.create(parameters)
        self.assertEqual(network.lost, 1)
        self.assertTrue(is_replay(charge))
        self.assertNotEqual(headers(charge)["original-request"], headers(charge)["request-id"])
        self.assertEqual(charges_of(parameters), [charge])

    def test_a_reply_lost_after_the_commit_is_replayed_to_the_retry_under_an_explicit_key(self):
        parameters, options = order(), {"idempotency_key": unique("key")}
        with Network(lose_replies=2) as network:
            charge = client(network.url).v1.charges.create(parameters, options)
        self.assertEqual(network.lost, 2)
        self.assertTrue(is_replay(charge))
        self.assertEqual(charges_of(parameters), [charge])

        later = client().v1.charges.create(parameters, options)
        self.assertEqual(later.id, charge.id)
        self.assertEqual(charges_of(parameters), [charge])

    def test_a_request_lost_on_its_way_is_executed_by_the_retry(self):
        parameters = order()
        with Network(lose_requests=1) as network:
            charge = client(network.url).v1.charges.create(parameters)
        self.assertEqual(network.lost, 1)
        self.assertFalse(is_replay(charge))
        self.assertEqual(charges_of(parameters), [charge])

    def test_a_lost_reply_to_a_refund_refunds_once(self):
        parameters = order()
        charge = client().v1.charges.create(parameters)
        with Network(lose_replies=1) as network:
            part = {"charge": charge.id, "amount": 500}
            refund = client(network.url).v1.refunds.create(part)
        self.assertTrue(is_replay(refund))
        self.assertEqual(charges_of(parameters)[0].amount_refunded, 500)

    def test_two_charges_without_keys_of_their_own_are_two_charges(self):
        parameters = order()
        made = [client().v1.charges.create(parameters).id for _ in range(2)]
        self.assertEqual([charge.id for charge in charges_of(parameters)], made[::-1])

    def test_fifty_threads_with_one_key_get_one_charge(self):
        parameters, options = order(), {"idempotency_key": unique("key")}
        together = threading.Barrier(50)

        def charge(_):
            one_of_many = client().v1.charges
            together.wait()
            return one_of_many.create(parameters, options)

        with ThreadPoolExecutor(50) as threads:
            made = list(threads.map(charge, range(50)))
        self.assertEqual({charge.id for charge in made}, {made[0].id})
        self.assertEqual([is_replay(charge) for charge in made].count(False), 1)
        self.assertEqual([charge.id for charge in charges_of(parameters)], [made[0].id])

    def test_a_duplicate_in_flight_waits_for_the_first_one_s_answer(self):
        parameters = order(source="tok_slow")
        options = {"idempotency_key": unique("key")}
        with ThreadPoolExecutor(2) as threads:
            tries = [
                threads.submit(client(max_network_retries=0).v1.charges.create, parameters, options)
                for _ in range(2)
            ]
            made = [charge.result() for charge in tries]
        self.assertEqual(made[0].id, made[1].id)
        self.assertEqual(sorted(map(is_replay, made)), [False, True])
        self.assertEqual(len(charges_of(parameters)), 1)

    def test_a_duplicate_that_is_told_409_is_retried_by_the_sdk(self):
        parameters, key = order(source="tok_slow"), unique("key")
        options = {"idempotency_key": key}
        with Server(IN_FLIGHT_WAIT_V1="0s") as server, ThreadPoolExecutor(1) as threads:
            first = threads.submit(client(server.url).v1.charges.create, parameters, options)
            eventually("the first request is under way", lambda: is_in_flight(key))
            with self.assertRaises(stripe.APIError) as in_flight:
                client(server.url, max_network_retries=0).v1.charges.create(parameters, options)
            self.assertEqual(in_flight.exception.http_status, 409)
            self.assertEqual(in_flight.exception.error.code, "idempotency_key_in_use")
            second = client(server.url, max_network_retries=4).v1.charges.create(parameters, options)
            self.assertTrue(is_replay(second))
            self.assertEqual(first.result().id, second.id)
        self.assertEqual(len(charges_of(parameters)), 1)

    def test_a_body_that_stalls_is_408_and_retried_by_the_sdk(self):
        parameters, options = order(), {"idempotency_key": unique("key")}
        with Network(lose_bodies=1) as network:
            charge = client(network.url).v1.charges.create(parameters, options)
        self.assertEqual(network.statuses, [408, 201])
        self.assertFalse(is_replay(charge))
        self.assertEqual(charges_of(parameters), [charge])

    def test_a_busy_resource_is_409_and_retried_by_the_sdk(self):
        # On a busy machine, a payment may be over before an update has waited its second.
        statuses = eventually("an update meets a payment", self.update_a_busy_order)
        self.assertEqual(statuses[0], 409)
        self.assertEqual(statuses[-1], 200)

    def update_a_busy_order(self):
        """Updates an order that is being paid. Gives the statuses, or nothing if it met no payment."""
        item = {"quantity": 1, "unit_amount": 2000}
        made = client().raw_request("post", "/v1/orders", currency="usd", items=[item])
        path, key = f"/v1/orders/{made.data['id']}", unique("key")
        with Network() as network, ThreadPoolExecutor(1) as threads:
            patient = client(network.url, max_network_retries=4)
            # The payment locks its order for two seconds, longer than an update waits for it.
            paid = threads.submit(
                client().raw_request, "post", f"{path}/pay", source="tok_slow", idempotency_key=key
            )
            eventually("the payment is under way", lambda: is_in_flight(key))
            updated = patient.raw_request("post", path, metadata={"channel": "web"})
            self.assertEqual(paid.result().data["status"], "paid")
        self.assertNotIn("idempotent-replayed", updated.headers)
        order_now = updated.data
        # Nor may the payment have its lock already once its key is claimed.
        if order_now["status"] == "open":
            return None
        self.assertEqual((order_now["status"], order_now["metadata"]), ("paid", {"channel": "web"}))
        return network.statuses if network.statuses != [200] else None

    def test_an_outage_frees_the_key_for_the_retry(self):
        parameters, options = order(), {"idempotency_key": unique("key")}
        with self.assertRaises(stripe.APIError) as outage:
            client().v1.charges.create({**parameters, "source": "tok_outage"}, options)
        self.assertEqual(outage.exception.http_status, 503)
        charge = client().v1.charges.create(parameters, options)
        self.assertFalse(is_replay(charge))
        self.assertEqual(charges_of(parameters), [charge])

    def test_a_server_killed_after_the_commit_replays_to_the_retry_after_its_restart(self):
        parameters = order()
        with Server() as server:
            with Network(server.url, lose_replies=1, when_lost=server.kill_and_restart) as network:
                patient = client(network.url, max_network_retries=6)
                charge = patient.v1.charges.create(parameters)
            self.assertEqual(network.lost, 1)
        self.assertTrue(is_replay(charge))
        self.assertEqual(charges_of(parameters), [charge])

    def test_a_server_killed_while_it_charges_charges_once_after_its_restart(self):
        parameters = order(source="tok_slow")
        options = {"idempotency_key": unique("key")}
        with Server() as server, ThreadPoolExecutor(1) as threads:
            patient = client(server.url, max_network_retries=6)
            first = threads.submit(patient.v1.charges.create, parameters, options)
            time.sleep(1)
            server.kill()
            self.assertEqual(charges_of(parameters), [])
            server.start()
            charge = first.result()
            again = patient.v1.charges.create(parameters, options)
        self.assertFalse(is_replay(charge))
        self.assertTrue(is_replay(again))
        self.assertEqual(charge.id, again.id)
        self.assertEqual([charge.id for charge in charges_of(parameters)], [charge.id])
