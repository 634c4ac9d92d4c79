"""Payments as Stripe's documentation writes them: intents, 3D Secure, saved cards, declines, refunds."""

import threading
import unittest

import stripe
from support import (
    RETURN_URL,
    Server,
    api_key_of_a_new_account,
    authenticate,
    client,
    is_replay,
    payment,
    unique,
)


class Intents(unittest.TestCase):
    def setUp(self):
        self.v1 = client().v1

    def pay(self, payment_method, **parameters):
        return self.v1.payment_intents.create(payment(payment_method, **parameters))

    def confirm(self, intent, payment_method, **options):
        parameters = {"payment_method": payment_method, "return_url": RETURN_URL}
        return self.v1.payment_intents.confirm(intent.id, parameters, options)

    def charges_of(self, intent):
        """The statuses of an intent's charges, newest first."""
        charges = self.v1.charges.list({"payment_intent": intent.id}).data
        return [charge.status for charge in charges]

    def assert_unexpected(self, error, status):
        self.assertIs(type(error), stripe.InvalidRequestError)
        self.assertEqual(error.code, "payment_intent_unexpected_state")
        self.assertEqual(error.error.payment_intent.status, status)

    def test_an_intent_is_created_confirmed_and_expanded(self):
        made = self.v1.payment_intents.create({"amount": 2000, "currency": "usd"})
        self.assertIs(type(made), stripe.PaymentIntent)
        self.assertEqual(made.status, "requires_payment_method")
        paid = self.confirm(made, "pm_card_visa")
        self.assertEqual((paid.status, paid.amount_received), ("succeeded", 2000))
        expand = ["latest_charge", "payment_method"]
        found = self.v1.payment_intents.retrieve(made.id, {"expand": expand})
        self.assertIs(type(found.latest_charge), stripe.Charge)
        self.assertIs(type(found.payment_method), stripe.PaymentMethod)
        self.assertEqual(found.latest_charge.payment_intent, made.id)
        self.assertEqual(found.payment_method.card.last4, "4242")

    def test_the_older_way_with_methods_of_the_object_works_too(self):
        made = self.v1.payment_intents.create(
            payment("pm_card_visa", capture_method="manual", confirm=False, return_url=None)
        )
        self.assertEqual(made.status, "requires_confirmation")
        made.confirm(return_url=RETURN_URL)
        self.assertEqual(made.status, "requires_capture")
        made.capture()
        self.assertEqual(made.status, "succeeded")
        with self.assertRaises(stripe.InvalidRequestError) as late:
            made.cancel()
        self.assert_unexpected(late.exception, "succeeded")

    def test_a_part_is_captured_and_the_rest_released(self):
        held = self.pay("pm_card_visa", capture_method="manual")
        self.assertEqual((held.status, held.amount_capturable), ("requires_capture", 2000))
        captured = self.v1.payment_intents.capture(held.id, {"amount_to_capture": 1500})
        self.assertEqual((captured.status, captured.amount_received), ("succeeded", 1500))
        self.assertEqual(captured.amount_capturable, 0)
        with self.assertRaises(stripe.InvalidRequestError) as again:
            self.v1.payment_intents.capture(held.id)
        self.assert_unexpected(again.exception, "succeeded")

    def test_a_card_declines_which_is_replayed_and_another_card_pays(self):
        made = self.v1.payment_intents.create({"amount": 2000, "currency": "usd"})
        key = unique("key")
        declines = []
        for _ in range(2):
            with self.assertRaises(stripe.CardError) as declined:
                self.confirm(made, "pm_card_chargeDeclinedInsufficientFunds", idempotency_key=key)
            error = declined.exception.error
            self.assertEqual(error.decline_code, "insufficient_funds")
            self.assertIs(type(error.payment_intent), stripe.PaymentIntent)
            self.assertIs(type(error.payment_method), stripe.PaymentMethod)
            self.assertEqual(error.payment_intent.status, "requires_payment_method")
            self.assertEqual(error.payment_intent.latest_charge, error.charge)
            declines.append(error.payment_intent)
        self.assertEqual(declines[0], declines[1])
        self.assertEqual(self.charges_of(made), ["failed"])
        paid = self.confirm(made, "pm_card_visa")
        self.assertEqual((paid.status, paid.last_payment_error), ("succeeded", None))
        self.assertEqual(self.charges_of(made), ["succeeded", "failed"])

    def test_a_bank_asks_and_the_customer_agrees(self):
        asked = self.pay("pm_card_threeDSecure2Required")
        self.assertEqual(asked.status, "requires_action")
        landed = authenticate(asked, "complete")
        self.assertEqual((landed["order"], landed["payment_intent"]), ("6735", asked.id))
        self.assertEqual(landed["redirect_status"], "succeeded")
        asked.refresh()
        self.assertEqual((asked.status, asked.next_action), ("succeeded", None))
        self.assertEqual(self.charges_of(asked), ["succeeded"])

    def test_a_bank_asks_and_the_customer_does_not_agree(self):
        asked = self.pay("pm_card_threeDSecure2Required")
        self.assertEqual(authenticate(asked, "fail")["redirect_status"], "failed")
        asked.refresh()
        self.assertEqual(asked.status, "requires_payment_method")
        self.assertEqual(asked.last_payment_error.code, "payment_intent_authentication_failure")
        self.assertEqual(self.charges_of(asked), [])

    def test_an_intent_is_refunded_in_parts_and_never_beyond_what_was_received(self):
        paid = self.pay("pm_card_visa")
        whole = {"payment_intent": paid.id}
        refund = self.v1.refunds.create({**whole, "amount": 500})
        self.assertEqual((refund.payment_intent, refund.charge), (paid.id, paid.latest_charge))
        with self.assertRaises(stripe.InvalidRequestError) as too_much:
            self.v1.refunds.create({**whole, "amount": 1501})
        self.assertEqual(too_much.exception.code, "refund_amount_too_large")
        self.assertEqual(self.v1.refunds.create(whole).amount, 1500)
        with self.assertRaises(stripe.InvalidRequestError) as once_more:
            self.v1.refunds.create({**whole, "amount": 100})
        self.assertEqual(once_more.exception.code, "charge_already_refunded")
        refunds = self.v1.refunds.list(whole).data
        self.assertEqual([refund.amount for refund in refunds], [1500, 500])


class SavedCards(unittest.TestCase):
    def setUp(self):
        self.v1 = client().v1
        self.customer = self.v1.customers.create({"email": "ann@example.com"})

    def set_up(self, payment_method):
        parameters = {"customer": self.customer.id, "payment_method": payment_method}
        parameters |= {"confirm": True, "return_url": RETURN_URL}
        return self.v1.setup_intents.create(parameters)

    def charge(self, payment_method):
        """Without the customer."""
        theirs = payment(payment_method, customer=self.customer.id, off_session=True)
        return self.v1.payment_intents.create(theirs)

    def test_a_setup_saves_a_card_which_is_then_charged_without_its_customer(self):
        saved = self.set_up("pm_card_visa")
        self.assertIs(type(saved), stripe.SetupIntent)
        self.assertEqual(saved.status, "succeeded")
        methods = self.v1.customers.payment_methods.list(self.customer.id).data
        self.assertEqual([method.id for method in methods], [saved.payment_method])
        self.assertEqual(self.charge(saved.payment_method).status, "succeeded")
        self.v1.payment_methods.detach(saved.payment_method)
        with self.assertRaises(stripe.InvalidRequestError):
            self.charge(saved.payment_method)

    def test_a_setup_whose_bank_asks_saves_the_card_when_the_customer_agrees(self):
        asked = self.set_up("pm_card_authenticationRequiredOnSetup")
        self.assertEqual(asked.status, "requires_action")
        self.assertEqual(authenticate(asked, "complete")["setup_intent"], asked.id)
        asked.refresh()
        self.assertEqual(asked.status, "succeeded")
        self.assertEqual(self.charge(asked.payment_method).status, "succeeded")

    def test_a_card_that_must_ask_declines_without_its_customer_and_pays_with_them(self):
        asked = self.set_up("pm_card_authenticationRequired")
        authenticate(asked, "complete")
        asked.refresh()
        with self.assertRaises(stripe.CardError) as declined:
            self.charge(asked.payment_method)
        error = declined.exception.error
        self.assertEqual(error.code, "authentication_required")
        again = {"payment_method": error.payment_method.id, "return_url": RETURN_URL}
        intent = self.v1.payment_intents.confirm(error.payment_intent.id, again)
        self.assertEqual(intent.status, "requires_action")
        authenticate(intent, "complete")
        intent.refresh()
        self.assertEqual(intent.status, "succeeded")

    def test_a_customer_is_found_changed_and_deleted(self):
        found = self.v1.customers.retrieve(self.customer.id)
        self.assertIs(type(found), stripe.Customer)
        self.assertEqual(found, self.customer)
        updated = self.v1.customers.update(found.id, {"name": "Ann Bo"})
        self.assertEqual((updated.name, updated.email), ("Ann Bo", "ann@example.com"))
        self.assertTrue(self.v1.customers.delete(found.id).deleted)
        self.assertTrue(self.v1.customers.retrieve(found.id).deleted)
        with self.assertRaises(stripe.InvalidRequestError) as gone:
            self.v1.payment_intents.create(payment("pm_card_visa", customer=found.id))
        self.assertEqual((gone.exception.code, gone.exception.param), ("resource_missing", "customer"))


class Pages(unittest.TestCase):
    def test_auto_paging_leads_through_all_customers_and_intents_in_both_directions(self):
        v1 = client(api_key=api_key_of_a_new_account()).v1
        customers, intents = [], []
        for number in range(7):
            customers.insert(0, v1.customers.create({"name": f"Customer {number}"}))
            money = {"amount": 1000 + number, "currency": "usd", "customer": customers[0].id}
            intents.insert(0, v1.payment_intents.create(money))
        for service, made in ((v1.customers, customers), (v1.payment_intents, intents)):
            ids = [one.id for one in made]
            for limit in (1, 3, 7, 100):
                pages = service.list({"limit": limit})
                self.assertEqual([one.id for one in pages.auto_paging_iter()], ids)
                pages = service.list({"limit": limit, "ending_before": ids[-1]})
                self.assertEqual([one.id for one in pages.auto_paging_iter()], ids[-2::-1])
        theirs = v1.payment_intents.list({"customer": customers[3].id}).data
        self.assertEqual([intent.id for intent in theirs], [intents[3].id])


class Faults(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(FAULTS="true")
        cls.v1 = client(cls.server.url).v1

    @classmethod
    def tearDownClass(cls):
        cls.server.kill()

    def charges_of(self, intent):
        charges = client().v1.charges.list({"payment_intent": intent.id}).data
        return [charge.id for charge in charges]

    def test_the_lost_reply_of_every_step_is_replayed_and_each_is_done_once(self):
        def lost():
            return {"idempotency_key": unique("key"), "headers": {"Fault": "reply_lost"}}

        intents = self.v1.payment_intents
        held = intents.create(payment("pm_card_visa", capture_method="manual"), lost())
        captured = intents.capture(held.id, {"amount_to_capture": 1500}, lost())
        refund = self.v1.refunds.create({"payment_intent": held.id, "amount": 500}, lost())
        canceled = intents.cancel(intents.create({"amount": 1, "currency": "usd"}).id, {}, lost())
        for answer in (held, captured, refund, canceled):
            self.assertTrue(is_replay(answer))
        self.assertEqual((held.status, captured.status), ("requires_capture", "succeeded"))
        self.assertEqual(canceled.status, "canceled")
        (charge,) = client().v1.charges.list({"payment_intent": held.id}).data
        self.assertEqual((charge.amount_captured, charge.amount_refunded), (1500, 500))

    def test_the_sdk_keeps_its_keys_and_waits_so_the_report_on_it_is_clean(self):
        def ask(sdk, *given, **parameters):
            return sdk.raw_request(*given, **parameters).data

        account = ask(client(self.server.url), "post", "/v1/test/accounts")
        tested = client(self.server.url, api_key=account["api_key"], max_network_retries=8)
        for fault in ("reply_lost", "503", "429", "request_lost"):
            plan = {"route": "*", "fault": fault, "every": 3, "requests": 4}
            ask(tested, "post", "/v1/test/faults", **plan)
        for _ in range(5):
            paid = tested.v1.payment_intents.create(payment("pm_card_visa"))
            tested.v1.refunds.create({"payment_intent": paid.id, "amount": 500})
        report = ask(tested, "get", "/v1/test/report")
        self.assertGreaterEqual(report["faults"], 4)
        self.assertEqual(report["findings"], [])

    def test_a_confirmation_that_is_late_finds_the_intent_canceled(self):
        intent = self.v1.payment_intents.create({"amount": 2000, "currency": "usd"})
        late = []

        def confirm():
            options = {"idempotency_key": unique("key"), "headers": {"Fault": "delay; seconds=1"}}
            parameters = {"payment_method": "pm_card_visa", "return_url": RETURN_URL}
            try:
                self.v1.payment_intents.confirm(intent.id, parameters, options)
            except stripe.StripeError as error:
                late.append(error)

        confirmation = threading.Thread(target=confirm)
        confirmation.start()
        canceled = client().v1.payment_intents.cancel(intent.id)
        confirmation.join()
        self.assertEqual(canceled.status, "canceled")
        self.assertEqual(late[0].code, "payment_intent_unexpected_state")
        self.assertEqual(late[0].error.payment_intent.status, "canceled")
        self.assertEqual(self.charges_of(intent), [])

    def test_a_payment_and_a_cancellation_at_once_have_one_winner(self):
        for _ in range(10):
            intent = self.v1.payment_intents.create({"amount": 2000, "currency": "usd"})
            ended = []

            def attempt(verb, parameters, intent=intent, ended=ended):
                try:
                    ended.append(verb(intent.id, parameters).status)
                except stripe.InvalidRequestError as error:
                    self.assertEqual(error.code, "payment_intent_unexpected_state")

            intents = client(max_network_retries=8).v1.payment_intents
            card = {"payment_method": "pm_card_visa", "return_url": RETURN_URL}
            threads = [
                threading.Thread(target=attempt, args=(intents.confirm, card)),
                threading.Thread(target=attempt, args=(intents.cancel, {})),
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            (winner,) = ended
            intent = client().v1.payment_intents.retrieve(intent.id)
            self.assertEqual(intent.status, winner)
            self.assertEqual(len(self.charges_of(intent)), winner == "succeeded")
