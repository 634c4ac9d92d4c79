"""Everyday use: what the SDK sends is understood, and what it gets is what it expects."""

import time
import unittest

import stripe
from support import (
    API_KEY,
    URL,
    api_key_of_a_new_account,
    charges_of,
    client,
    order,
    unique,
)


class Charges(unittest.TestCase):
    def setUp(self):
        self.v1 = client().v1

    def test_a_charge_is_created_retrieved_updated_and_listed(self):
        parameters = order(
            description="Tee & Käse = 100 % a+b",
            metadata={"order id": "6735", "note 1": "a+b &=%"},
            receipt_email="jenny@example.com",
            statement_descriptor="CHARGE ONCE",
        )
        charge = self.v1.charges.create(parameters)
        self.assertIs(type(charge), stripe.Charge)
        self.assertEqual(charge.last_response.code, 201)
        self.assertEqual((charge.amount, charge.currency), (2000, "usd"))
        self.assertEqual((charge.status, charge.paid, charge.captured), ("succeeded", True, True))
        for name in ("customer", "description", "receipt_email", "statement_descriptor"):
            self.assertEqual(charge[name], parameters[name])
        self.assertEqual(charge.metadata.to_dict(), parameters["metadata"])
        self.assertIs(type(charge.source), stripe.Card)
        self.assertEqual((charge.source.brand.lower(), charge.source.last4), ("visa", "4242"))
        self.assertEqual(charge.payment_method_details.card.last4, "4242")
        self.assertEqual(charge.outcome.type, "authorized")

        self.assertEqual(self.v1.charges.retrieve(charge.id), charge)
        changes = {"description": "changed", "metadata": {"order id": "", "more": "yes"}}
        updated = self.v1.charges.update(charge.id, changes)
        self.assertEqual(updated.description, "changed")
        self.assertEqual(updated.metadata.to_dict(), {"note 1": "a+b &=%", "more": "yes"})
        self.assertEqual(charges_of(parameters), [updated])

    def test_a_card_may_be_given_by_number(self):
        card = {"object": "card", "number": "5555555555554444"}
        card |= {"exp_month": 12, "exp_year": 2099, "cvc": "123"}
        charge = self.v1.charges.create(order(source=card))
        self.assertEqual((charge.source.last4, charge.source.exp_year), ("4444", 2099))

    def test_the_older_way_with_global_settings_needs_only_another_address_too(self):
        before = stripe.api_key, stripe.api_base
        stripe.api_key, stripe.api_base = API_KEY, URL
        try:
            parameters = order()
            charge = stripe.Charge.create(**parameters)
            listed = stripe.Charge.list(customer=parameters["customer"])
            self.assertEqual(listed.data, [stripe.Charge.retrieve(charge.id)])
            charge = stripe.Charge.modify(charge.id, description="changed")
            self.assertEqual(charge.description, "changed")
            refund = stripe.Refund.create(charge=charge.id)
            self.assertEqual(stripe.Charge.list_refunds(charge.id).data, [refund])
            charge.refresh()
            self.assertTrue(charge.refunded)
        finally:
            stripe.api_key, stripe.api_base = before

    def test_a_charge_is_captured_whole_without_a_body_or_in_part(self):
        promised = self.v1.charges.create(order(capture=False))
        self.assertEqual((promised.captured, promised.amount_captured), (False, 0))
        captured = self.v1.charges.capture(promised.id)
        self.assertEqual((captured.captured, captured.amount_captured), (True, 2000))

        promised = self.v1.charges.create(order(capture=False))
        captured = promised.capture(amount=500)
        self.assertEqual((captured.captured, captured.amount_captured), (True, 500))
        self.assertEqual(captured.amount_refunded, 0)

        with self.assertRaises(stripe.InvalidRequestError) as again:
            self.v1.charges.capture(promised.id)
        self.assertEqual(again.exception.code, "charge_already_captured")

    def test_a_charge_is_refunded_in_parts_and_never_beyond_what_was_captured(self):
        charge = self.v1.charges.create(order())
        part = {"charge": charge.id, "amount": 500, "reason": "requested_by_customer"}
        refund = self.v1.refunds.create({**part, "metadata": {"ticket": "7"}})
        self.assertIs(type(refund), stripe.Refund)
        self.assertEqual((refund.amount, refund.charge, refund.status), (500, charge.id, "succeeded"))
        self.assertEqual(self.v1.refunds.retrieve(refund.id), refund)
        updated = self.v1.refunds.update(refund.id, {"metadata": {"ticket": "8"}})
        self.assertEqual(updated.metadata.to_dict(), {"ticket": "8"})

        with self.assertRaises(stripe.InvalidRequestError) as too_much:
            self.v1.refunds.create({"charge": charge.id, "amount": 1501})
        self.assertEqual(too_much.exception.code, "refund_amount_too_large")
        self.assertEqual(too_much.exception.param, "amount")

        rest = self.v1.refunds.create({"charge": charge.id, "expand": ["charge"]})
        self.assertEqual(rest.amount, 1500)
        self.assertEqual((rest.charge.id, rest.charge.refunded), (charge.id, True))
        with self.assertRaises(stripe.InvalidRequestError) as once_more:
            self.v1.refunds.create({"charge": charge.id})
        self.assertEqual(once_more.exception.code, "charge_already_refunded")

    def test_arrays_and_maps_of_a_raw_request_are_understood(self):
        items = [
            {"description": "tea", "quantity": 2, "unit_amount": 300},
            {"sku": "cheese", "quantity": 1, "unit_amount": 1400},
        ]
        raw = client()
        reply = raw.raw_request("post", "/v1/orders", currency="usd", items=items)
        made = raw.deserialize(reply, api_mode="V1")
        self.assertEqual((made.amount, made.status), (2000, "open"))
        self.assertEqual(made["items"][1].sku, "cheese")


class Lists(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.v1 = client(api_key=api_key_of_a_new_account()).v1
        cls.charges = [cls.v1.charges.create(order(amount=1000 + n)) for n in range(7)]
        cls.ids = [charge.id for charge in reversed(cls.charges)]

    def test_auto_paging_leads_through_everything_newest_first(self):
        for limit in (1, 3, 7, 100):
            pages = self.v1.charges.list({"limit": limit})
            self.assertEqual(pages.url, "/v1/charges")
            self.assertEqual([charge.id for charge in pages.auto_paging_iter()], self.ids)

    def test_auto_paging_before_a_cursor_leads_back_to_the_newest(self):
        for limit in (1, 2, 6, 100):
            pages = self.v1.charges.list({"limit": limit, "ending_before": self.ids[-1]})
            found = [charge.id for charge in pages.auto_paging_iter()]
            self.assertEqual(found, self.ids[-2::-1])

    def test_pages_are_turned_by_hand_in_both_directions(self):
        first = self.v1.charges.list({"limit": 3})
        second = first.next_page()
        self.assertEqual([charge.id for charge in second.data], self.ids[3:6])
        last = second.next_page()
        self.assertEqual([charge.id for charge in last.data], self.ids[6:])
        self.assertFalse(last.has_more)
        self.assertTrue(last.next_page().is_empty)

        fourth_to_sixth = self.v1.charges.list({"limit": 3, "ending_before": self.ids[6]})
        self.assertEqual(fourth_to_sixth.data, second.data)
        first_to_third = fourth_to_sixth.previous_page()
        self.assertEqual(first_to_third.data, first.data)
        self.assertFalse(first_to_third.has_more)

    def test_filters_go_with_the_pages(self):
        since = {"gte": self.charges[0].created, "lt": int(time.time()) + 60}
        pages = self.v1.charges.list({"limit": 2, "created": since})
        self.assertEqual([charge.id for charge in pages.auto_paging_iter()], self.ids)
        pages = self.v1.charges.list({"created": {"gt": int(time.time()) + 60}})
        self.assertEqual((pages.data, pages.has_more), ([], False))

    def test_the_refunds_inside_a_charge_are_paged_by_their_own_url(self):
        charge = self.charges[0]
        made = [self.v1.refunds.create({"charge": charge.id, "amount": 1}) for _ in range(12)]
        ids = [refund.id for refund in reversed(made)]
        for refunds in (
            self.v1.charges.retrieve(charge.id, {"expand": ["refunds"]}).refunds,
            self.v1.charges.list({"expand": ["data.refunds"]}).data[-1].refunds,
        ):
            self.assertEqual(refunds.url, f"/v1/charges/{charge.id}/refunds")
            self.assertTrue(refunds.has_more)
            self.assertEqual([refund.id for refund in refunds.auto_paging_iter()], ids)
        pages = self.v1.refunds.list({"charge": charge.id, "limit": 5})
        self.assertEqual([refund.id for refund in pages.auto_paging_iter()], ids)

    def test_events_tell_what_happened_and_under_which_key(self):
        key = unique("key")
        charge = self.v1.charges.create(order(), {"idempotency_key": key})
        event = self.v1.events.list({"type": "charge.succeeded", "limit": 1}).data[0]
        self.assertIs(type(event), stripe.Event)
        self.assertEqual(event.type, "charge.succeeded")
        self.assertEqual(event.request.idempotency_key, key)
        self.assertIs(type(event.data.object), stripe.Charge)
        self.assertEqual(event.data.object, charge)
        self.assertEqual(self.v1.events.retrieve(event.id), event)

        self.v1.charges.create(order(), {"idempotency_key": unique("key")})
        self.v1.refunds.create({"charge": charge.id})
        forwards = [event.id for event in self.v1.events.list({"limit": 2}).auto_paging_iter()]
        before = {"limit": 2, "ending_before": forwards[-1]}
        backwards = [event.id for event in self.v1.events.list(before).auto_paging_iter()]
        self.assertEqual(backwards, forwards[-2::-1])
        types = [event.type for event in self.v1.events.list({"limit": 3}).data]
        self.assertIn("refund.created", types)
        self.assertIn("charge.refunded", types)
        # This charge must not appear in the list that other tests count.
        type(self).ids = [c.id for c in self.v1.charges.list({"limit": 100}).data]
