// Payments as Stripe's documentation writes them: intents, 3D Secure, manual capture, declines, refunds.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import {
  RETURN_URL,
  Server,
  apiKeyOfANewAccount,
  authenticate,
  client,
  ids,
  isReplay,
  payment,
  refusal,
  unique,
} from './support.mjs';

const stripe = client();

/** The charges of an intent, newest first. */
const chargesOf = async ({ id }) => (await stripe.charges.list({ payment_intent: id })).data;

const confirm = ({ id }, payment_method, parameters = {}, options = {}) =>
  stripe.paymentIntents.confirm(id, { payment_method, return_url: RETURN_URL, ...parameters }, options);

const create = (parameters = {}) =>
  stripe.paymentIntents.create({ amount: 2000, currency: 'usd', ...parameters });

const isUnexpected = (error, status) => {
  assert.equal(error.type, 'StripeInvalidRequestError');
  assert.equal(error.code, 'payment_intent_unexpected_state');
  assert.equal(error.payment_intent.status, status);
};

test('an intent is created, updated and confirmed, and leads to its charge', async () => {
  const made = await create({ metadata: { order: '6735' } });
  assert.equal(made.object, 'payment_intent');
  assert.deepEqual([made.status, made.amount], ['requires_payment_method', 2000]);
  assert.deepEqual(made.payment_method_types, ['card']);
  assert.ok(made.client_secret.startsWith(`${made.id}_secret_`));
  const changes = { amount: 2150, description: 'tea', metadata: { shelf: '7' } };
  const updated = await stripe.paymentIntents.update(made.id, changes);
  assert.deepEqual([updated.amount, updated.description], [2150, 'tea']);
  assert.deepEqual(updated.metadata, { order: '6735', shelf: '7' });

  const paid = await confirm(made, 'pm_card_visa');
  assert.deepEqual([paid.status, paid.amount_received, paid.last_payment_error], ['succeeded', 2150, null]);
  assert.notEqual(paid.payment_method, 'pm_card_visa');
  assert.deepEqual(await stripe.paymentIntents.retrieve(made.id), paid);

  const expand = ['latest_charge', 'payment_method'];
  const { latest_charge: charge, payment_method: method } = await stripe.paymentIntents.retrieve(
    made.id,
    { expand },
  );
  assert.deepEqual([charge.id, charge.amount, charge.captured], [paid.latest_charge, 2150, true]);
  assert.deepEqual([charge.payment_intent, charge.payment_method], [made.id, method.id]);
  assert.deepEqual([charge.description, charge.metadata], ['tea', updated.metadata]);
  assert.deepEqual([method.type, method.card.brand, method.card.last4], ['card', 'visa', '4242']);
  assert.deepEqual(ids(await chargesOf(made)), [charge.id]);
});

test('an intent is created and confirmed in one request', async () => {
  const paid = await stripe.paymentIntents.create(payment('pm_card_mastercard'));
  assert.equal(paid.lastResponse.statusCode, 201);
  assert.deepEqual([paid.status, paid.amount_received], ['succeeded', 2000]);
});

test('redirects need a return_url, unless they are ruled out', async () => {
  const parameters = payment('pm_card_visa', { return_url: undefined });
  const error = await refusal(stripe.paymentIntents.create(parameters));
  assert.deepEqual([error.type, error.param], ['StripeInvalidRequestError', 'return_url']);
  const automatic_payment_methods = { enabled: true, allow_redirects: 'never' };
  const paid = await stripe.paymentIntents.create({ ...parameters, automatic_payment_methods });
  assert.equal(paid.status, 'succeeded');
});

test('an intent is authorized, and captured whole', async () => {
  const held = await stripe.paymentIntents.create(payment('pm_card_visa', { capture_method: 'manual' }));
  assert.deepEqual([held.status, held.amount_capturable, held.amount_received], ['requires_capture', 2000, 0]);
  assert.equal((await chargesOf(held))[0].captured, false);
  const captured = await stripe.paymentIntents.capture(held.id);
  assert.deepEqual([captured.status, captured.amount_capturable], ['succeeded', 0]);
  assert.equal(captured.amount_received, 2000);
  isUnexpected(await refusal(stripe.paymentIntents.capture(held.id)), 'succeeded');
});

test('an intent is captured in part, and the rest is released', async () => {
  const held = await stripe.paymentIntents.create(payment('pm_card_visa', { capture_method: 'manual' }));
  await assert.rejects(stripe.paymentIntents.capture(held.id, { amount_to_capture: 2001 }), {
    type: 'StripeInvalidRequestError',
    code: 'capture_amount_too_large',
    param: 'amount_to_capture',
  });
  const captured = await stripe.paymentIntents.capture(held.id, { amount_to_capture: 1500 });
  assert.deepEqual([captured.status, captured.amount], ['succeeded', 2000]);
  assert.deepEqual([captured.amount_received, captured.amount_capturable], [1500, 0]);
  const [charge] = await chargesOf(held);
  assert.deepEqual([charge.captured, charge.amount_captured], [true, 1500]);
  const refund = await stripe.refunds.create({ payment_intent: held.id });
  assert.equal(refund.amount, 1500);
});

test('an authorized intent is canceled, and its charge released', async () => {
  const held = await stripe.paymentIntents.create(payment('pm_card_visa', { capture_method: 'manual' }));
  await assert.rejects(stripe.refunds.create({ payment_intent: held.id }), { code: 'charge_not_captured' });
  const reason = { cancellation_reason: 'requested_by_customer' };
  const canceled = await stripe.paymentIntents.cancel(held.id, reason);
  assert.deepEqual([canceled.status, canceled.amount_capturable], ['canceled', 0]);
  assert.equal(canceled.cancellation_reason, 'requested_by_customer');
  const [charge] = await chargesOf(held);
  assert.deepEqual([charge.refunded, charge.captured], [true, false]);
  isUnexpected(await refusal(stripe.paymentIntents.cancel(held.id)), 'canceled');
  isUnexpected(await refusal(stripe.paymentIntents.capture(held.id)), 'canceled');
  isUnexpected(await refusal(confirm(held, 'pm_card_visa')), 'canceled');
});

test('a card declines, which is kept and replayed, and another card pays', async () => {
  const made = await create();
  const options = { idempotencyKey: unique('key') };
  const insufficient = 'pm_card_chargeDeclinedInsufficientFunds';
  const error = await refusal(confirm(made, insufficient, {}, options));
  assert.deepEqual([error.type, error.code], ['StripeCardError', 'card_declined']);
  assert.equal(error.decline_code, 'insufficient_funds');
  assert.deepEqual([error.payment_method.object, error.payment_method.card.last4], ['payment_method', '9995']);
  const intent = error.payment_intent;
  assert.deepEqual([intent.id, intent.status], [made.id, 'requires_payment_method']);
  assert.deepEqual([intent.payment_method, intent.latest_charge], [null, error.charge]);
  assert.equal(intent.last_payment_error.decline_code, 'insufficient_funds');
  assert.equal(intent.last_payment_error.payment_method.card.last4, '9995');
  assert.deepEqual(JSON.parse(JSON.stringify(await stripe.paymentIntents.retrieve(made.id))), intent);

  const again = await refusal(confirm(made, insufficient, {}, options));
  assert.deepEqual([again.charge, again.payment_intent], [error.charge, intent]);
  assert.deepEqual(ids(await chargesOf(made)), [error.charge]);

  const paid = await confirm(made, 'pm_card_visa');
  assert.deepEqual([paid.status, paid.last_payment_error], ['succeeded', null]);
  assert.deepEqual((await chargesOf(made)).map(({ status }) => status), ['succeeded', 'failed']);
  // The key's answer stays what it was.
  const later = await refusal(confirm(made, insufficient, {}, options));
  assert.deepEqual(later.payment_intent, intent);
});

test('a decline of an intent that is created and confirmed leaves the intent', async () => {
  const [parameters, options] = [payment('pm_card_chargeDeclined'), { idempotencyKey: unique('key') }];
  const error = await refusal(stripe.paymentIntents.create(parameters, options));
  assert.deepEqual([error.type, error.decline_code], ['StripeCardError', 'generic_decline']);
  const again = await refusal(stripe.paymentIntents.create(parameters, options));
  assert.deepEqual(again.payment_intent, error.payment_intent);
  const paid = await confirm(error.payment_intent, 'pm_card_visa');
  assert.deepEqual([paid.id, paid.status], [error.payment_intent.id, 'succeeded']);
});

test('a bank asks, the customer agrees, and lands in the shop', async () => {
  const asked = await stripe.paymentIntents.create(payment('pm_card_threeDSecure2Required'));
  assert.deepEqual([asked.status, asked.amount_received], ['requires_action', 0]);
  assert.deepEqual(await chargesOf(asked), []);
  for (const visit of [1, 2]) {
    const landed = await authenticate(asked, 'complete');
    assert.equal(landed.get('order'), '6735');
    assert.equal(landed.get('payment_intent'), asked.id);
    assert.equal(landed.get('payment_intent_client_secret'), asked.client_secret);
    assert.equal(landed.get('redirect_status'), 'succeeded', `visit ${visit}`);
  }
  const paid = await stripe.paymentIntents.retrieve(asked.id);
  assert.deepEqual([paid.status, paid.next_action], ['succeeded', null]);
  const [charge, ...others] = await chargesOf(asked);
  assert.deepEqual(others, []);
  assert.equal(charge.payment_method_details.card.three_d_secure.result, 'authenticated');
});

test('a bank asks, the customer does not agree, and pays with another card', async () => {
  const asked = await stripe.paymentIntents.create(payment('pm_card_authenticationRequired'));
  assert.equal((await authenticate(asked, 'fail')).get('redirect_status'), 'failed');
  const failed = await stripe.paymentIntents.retrieve(asked.id);
  assert.deepEqual([failed.status, failed.payment_method], ['requires_payment_method', null]);
  assert.equal(failed.last_payment_error.code, 'payment_intent_authentication_failure');
  assert.deepEqual(await chargesOf(asked), []);
  assert.equal((await confirm(asked, 'pm_card_visa')).status, 'succeeded');
});

test('a bank asks, the customer agrees, and the card declines', async () => {
  const asked = await stripe.paymentIntents.create(payment('pm_card_threeDSecureRequiredChargeDeclined'));
  assert.equal((await authenticate(asked, 'complete')).get('redirect_status'), 'failed');
  const failed = await stripe.paymentIntents.retrieve(asked.id);
  assert.deepEqual([failed.status, failed.last_payment_error.code], ['requires_payment_method', 'card_declined']);
  assert.deepEqual((await chargesOf(asked)).map(({ status }) => status), ['failed']);
});

test('error_on_requires_action refuses a card whose bank asks', async () => {
  const parameters = payment('pm_card_authenticationRequired', { error_on_requires_action: true });
  const error = await refusal(stripe.paymentIntents.create(parameters));
  assert.deepEqual([error.type, error.code], ['StripeCardError', 'authentication_required']);
  assert.equal(error.payment_intent.status, 'requires_payment_method');
  assert.deepEqual(await chargesOf(error.payment_intent), []);
});

test('an intent is refunded in parts, and never beyond what was received', async () => {
  const paid = await stripe.paymentIntents.create(payment('pm_card_visa'));
  const of = (parameters = {}) => stripe.refunds.create({ payment_intent: paid.id, ...parameters });
  const refund = await of({ amount: 500, reason: 'requested_by_customer' });
  assert.deepEqual([refund.amount, refund.status], [500, 'succeeded']);
  assert.deepEqual([refund.payment_intent, refund.charge], [paid.id, paid.latest_charge]);
  await assert.rejects(of({ amount: 1501 }), { code: 'refund_amount_too_large', param: 'amount' });
  const rest = await of({ expand: ['payment_intent', 'charge'] });
  assert.deepEqual([rest.amount, rest.charge.refunded], [1500, true]);
  assert.deepEqual([rest.payment_intent.status, rest.payment_intent.amount_received], ['succeeded', 2000]);
  await assert.rejects(of({ amount: 1 }), { code: 'charge_already_refunded' });
  const listed = await stripe.refunds.list({ payment_intent: paid.id });
  assert.deepEqual(ids(listed.data), [rest.id, refund.id]);
});

test('an intent without a charge is not refunded', async () => {
  const made = await create();
  isUnexpected(
    await refusal(stripe.refunds.create({ payment_intent: made.id })),
    'requires_payment_method',
  );
});

test('auto-paging leads through all intents, and those of a customer', async () => {
  const mine = client(undefined, { apiKey: apiKeyOfANewAccount() });
  const { id: customer } = await mine.customers.create();
  const made = [];
  for (let number = 0; number < 7; number += 1) {
    const parameters = { amount: 1000 + number, currency: 'usd' };
    if (number % 2) parameters.customer = customer;
    made.unshift(await mine.paymentIntents.create(parameters));
  }
  for (const limit of [1, 3, 7, 100]) {
    const pages = mine.paymentIntents.list({ limit });
    assert.equal((await pages).url, '/v1/payment_intents');
    assert.deepEqual(ids(await pages.autoPagingToArray({ limit: 50 })), ids(made));
  }
  const pages = mine.paymentIntents.list({ customer, limit: 2 });
  const theirs = made.filter((intent) => intent.customer === customer);
  assert.deepEqual(ids(await pages.autoPagingToArray({ limit: 50 })), ids(theirs));
});

test('events tell the life of an intent', async () => {
  const mine = client(undefined, { apiKey: apiKeyOfANewAccount() });
  const made = await mine.paymentIntents.create({ amount: 2000, currency: 'usd' });
  const confirmed = { payment_method: 'pm_card_chargeDeclined', return_url: RETURN_URL };
  await refusal(mine.paymentIntents.confirm(made.id, confirmed));
  const paid = await mine.paymentIntents.confirm(made.id, { ...confirmed, payment_method: 'pm_card_visa' });
  const events = await mine.events.list().autoPagingToArray({ limit: 50 });
  const types = events.map(({ type }) => type).reverse();
  assert.deepEqual(types, [
    'payment_intent.created',
    'charge.failed',
    'payment_intent.payment_failed',
    'charge.succeeded',
    'payment_intent.succeeded',
  ]);
  assert.deepEqual(events[0].data.object, JSON.parse(JSON.stringify(paid)));
});

test('a confirmation whose reply is lost is replayed, and charges once', async (t) => {
  const made = await create();
  const server = await Server.start({ FAULTS: 'true' });
  t.after(() => server.kill());
  for (const payment_method of ['pm_card_chargeDeclined', 'pm_card_visa']) {
    const parameters = { payment_method, return_url: RETURN_URL };
    const options = {
      idempotencyKey: unique('key'),
      additionalHeaders: { Fault: 'reply_lost' },
    };
    const path = `/v1/payment_intents/${made.id}/confirm`;
    const answer = await client(server.url)
      .rawRequest('POST', path, parameters, options)
      .catch((error) => error);
    if (payment_method === 'pm_card_visa') {
      assert.ok(isReplay(answer));
      assert.equal(answer.status, 'succeeded');
    } else {
      assert.equal(answer.headers['idempotent-replayed'], 'true');
      assert.equal(answer.payment_intent.status, 'requires_payment_method');
    }
  }
  assert.deepEqual((await chargesOf(made)).map(({ status }) => status), ['succeeded', 'failed']);
});

test('the SDK keeps its keys and waits, so the report on it is clean', async (t) => {
  const server = await Server.start({ FAULTS: 'true' });
  t.after(() => server.kill());
  const { api_key: apiKey } = await client(server.url).rawRequest('POST', '/v1/test/accounts');
  const tested = client(server.url, { apiKey });
  for (const fault of ['reply_lost', '503', '429', 'request_lost']) {
    await tested.rawRequest('POST', '/v1/test/faults', { route: '*', fault, every: 3, requests: 4 });
  }
  for (let count = 0; count < 5; count += 1) {
    const { id } = await tested.paymentIntents.create(payment('pm_card_visa'), { maxNetworkRetries: 8 });
    await tested.refunds.create({ payment_intent: id, amount: 500 }, { maxNetworkRetries: 8 });
  }
  const { faults, findings } = await tested.rawRequest('GET', '/v1/test/report');
  assert.ok(faults >= 4, `${faults}`);
  assert.deepEqual(findings, []);
});

test('a confirmation that is late finds the intent paid', async (t) => {
  const made = await create();
  const server = await Server.start({ FAULTS: 'true' });
  t.after(() => server.kill());
  const parameters = { payment_method: 'pm_card_visa', return_url: RETURN_URL };
  const options = {
    idempotencyKey: unique('key'),
    additionalHeaders: { Fault: 'delay; seconds=1' },
  };
  const path = `/v1/payment_intents/${made.id}/confirm`;
  const late = refusal(client(server.url).rawRequest('POST', path, parameters, options));
  const paid = await confirm(made, 'pm_card_mastercard');
  isUnexpected(await late, 'succeeded');
  assert.deepEqual(ids(await chargesOf(made)), [paid.latest_charge]);
});

test('twenty confirmations at once, each under its own key, charge once', async () => {
  const made = await create();
  const calls = Array.from({ length: 20 }, () => confirm(made, 'pm_card_visa', {}, { maxNetworkRetries: 8 }));
  const ended = await Promise.allSettled(calls);
  const paid = ended.filter(({ status }) => status === 'fulfilled');
  assert.equal(paid.length, 1);
  for (const { status, reason } of ended) {
    if (status === 'rejected') isUnexpected(reason, 'succeeded');
  }
  assert.deepEqual(ids(await chargesOf(made)), [paid[0].value.latest_charge]);
});
