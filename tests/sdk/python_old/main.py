"""What an older SDK writes in another way: its forms say True and False, as Python does."""

import os
import unittest
import uuid

import stripe

stripe.api_base = os.environ["CHARGE_ONCE_URL"]
stripe.api_key = os.environ["CHARGE_ONCE_API_KEY"]


def key():
    return str(uuid.uuid4())


class OldSdk(unittest.TestCase):
    def test_an_authorized_charge_takes_no_money_until_it_is_captured(self):
        charge = stripe.Charge.create(
            amount=2000, currency="usd", source="tok_visa", capture=False, idempotency_key=key()
        )
        self.assertEqual((charge.captured, charge.amount_captured), (False, 0))
        captured = charge.capture(amount=1500, idempotency_key=key())
        self.assertEqual((captured.captured, captured.amount_captured), (True, 1500))

    def test_an_intent_is_confirmed_at_once_and_its_card_is_charged_off_session(self):
        intent = stripe.PaymentIntent.create(
            amount=2000,
            currency="usd",
            payment_method="pm_card_visa",
            automatic_payment_methods={"enabled": True, "allow_redirects": "never"},
            confirm=True,
            off_session=True,
            error_on_requires_action=False,
            use_stripe_sdk=False,
            idempotency_key=key(),
        )
        self.assertEqual((intent.status, intent.amount_received), ("succeeded", 2000))
        refund = stripe.Refund.create(payment_intent=intent.id, idempotency_key=key())
        self.assertEqual(refund.status, "succeeded")

    def test_lists_page_themselves(self):
        customer = str(uuid.uuid4())
        ids = [
            stripe.Charge.create(
                amount=100, currency="usd", customer=customer, idempotency_key=key()
            ).id
            for _ in range(3)
        ]
        listed = stripe.Charge.list(customer=customer, limit=2).auto_paging_iter()
        self.assertEqual([charge.id for charge in listed], ids[::-1])


print(f"stripe {stripe.VERSION}")
unittest.main(verbosity=2)
