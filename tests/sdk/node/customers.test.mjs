// Customers and their cards: saved with a setup or a payment, and charged without the customer.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { RETURN_URL, apiKeyOfANewAccount, authenticate, client, ids, payment, refusal } from './support.mjs';

const stripe = client();

const cardsOf = async (customer) => ids((await stripe.customers.listPaymentMethods(customer)).data);

/** A setup of this card for a new customer. */
async function setup(payment_method) {
  const { id: customer } = await stripe.customers.create();
  const parameters = { customer, payment_method, confirm: true, return_url: RETURN_URL };
  return stripe.setupIntents.create(parameters);
}

const offSession = (payment_method, customer) =>
  stripe.paymentIntents.create(payment(payment_method, { customer, off_session: true }));

test('a customer is created, retrieved, updated, found by email and deleted', async () => {
  const mine = client(undefined, { apiKey: apiKeyOfANewAccount() });
  const address = { city: 'Bonn', country: 'DE', line1: 'Rheinweg 1', line2: '' };
  const made = await mine.customers.create({
    address,
    email: 'ann@example.com',
    metadata: { tier: 'gold' },
    name: 'Ann Bo',
    phone: '',
  });
  assert.equal(made.object, 'customer');
  assert.deepEqual([made.email, made.name, made.phone], ['ann@example.com', 'Ann Bo', null]);
  assert.deepEqual([made.address.city, made.address.line2], ['Bonn', null]);
  assert.equal(made.invoice_settings.default_payment_method, null);
  assert.deepEqual(await mine.customers.retrieve(made.id), made);

  const changes = { name: 'Ann Lee', metadata: { tier: '', since: '2026' } };
  const updated = await mine.customers.update(made.id, changes);
  assert.deepEqual([updated.name, updated.email], ['Ann Lee', 'ann@example.com']);
  assert.deepEqual(updated.metadata, { since: '2026' });

  await mine.customers.create({ email: 'bo@example.com' });
  const found = await mine.customers.list({ email: 'ann@example.com' });
  assert.deepEqual(ids(found.data), [made.id]);
  assert.deepEqual((await mine.customers.list({ email: 'Ann@example.com' })).data, []);

  const deleted = await mine.customers.del(made.id);
  assert.deepEqual([deleted.id, deleted.deleted], [made.id, true]);
  assert.equal((await mine.customers.retrieve(made.id)).deleted, true);
  assert.deepEqual((await mine.customers.list({ email: 'ann@example.com' })).data, []);
  const missing = { statusCode: 404, code: 'resource_missing' };
  await assert.rejects(mine.customers.del(made.id), missing);
  await assert.rejects(mine.customers.update(made.id, changes), missing);
});

test('auto-paging leads through all customers, in both directions', async () => {
  const mine = client(undefined, { apiKey: apiKeyOfANewAccount() });
  const made = [];
  for (let number = 0; number < 7; number += 1) {
    made.unshift(await mine.customers.create({ name: `Customer ${number}` }));
  }
  for (const limit of [1, 3, 7, 100]) {
    const pages = mine.customers.list({ limit });
    assert.equal((await pages).url, '/v1/customers');
    assert.deepEqual(ids(await pages.autoPagingToArray({ limit: 50 })), ids(made));
  }
  const pages = mine.customers.list({ limit: 2, ending_before: made.at(-1).id });
  const backwards = await pages.autoPagingToArray({ limit: 50 });
  assert.deepEqual(ids(backwards), ids(made).slice(0, -1).reverse());
});

test('a card is made of its number, attached, changed, made the default and detached', async () => {
  const { id: customer } = await stripe.customers.create();
  const card = { number: '4242424242424242', exp_month: 12, exp_year: 2099, cvc: '123' };
  const billing_details = { email: 'ann@example.com', name: 'Ann Bo' };
  const made = await stripe.paymentMethods.create({ type: 'card', card, billing_details });
  assert.deepEqual([made.card.last4, made.card.exp_year, made.customer], ['4242', 2099, null]);
  assert.equal(made.billing_details.name, 'Ann Bo');
  for (const time of [1, 2]) {
    const attached = await stripe.paymentMethods.attach(made.id, { customer });
    assert.equal(attached.customer, customer, `time ${time}`);
  }
  const updated = await stripe.paymentMethods.update(made.id, { card: { exp_month: 1, exp_year: 2098 } });
  assert.deepEqual([updated.card.exp_month, updated.card.exp_year], [1, 2098]);
  const invoice_settings = { default_payment_method: made.id };
  const theirs = await stripe.customers.update(customer, { invoice_settings });
  assert.equal(theirs.invoice_settings.default_payment_method, made.id);
  assert.deepEqual(await cardsOf(customer), [made.id]);
  assert.deepEqual(ids((await stripe.paymentMethods.list({ customer, type: 'card' })).data), [made.id]);

  assert.equal((await stripe.paymentMethods.detach(made.id)).customer, null);
  assert.deepEqual(await cardsOf(customer), []);
  assert.equal((await stripe.customers.retrieve(customer)).invoice_settings.default_payment_method, null);
  const unexpected = { code: 'payment_method_unexpected_state' };
  await assert.rejects(stripe.paymentMethods.detach(made.id), unexpected);
  await assert.rejects(stripe.paymentMethods.attach(made.id, { customer }), unexpected);
});

test('a card that declines is not attached, unless it only declines charges', async () => {
  const { id: customer } = await stripe.customers.create();
  const declined = await refusal(stripe.paymentMethods.attach('pm_card_chargeDeclined', { customer }));
  assert.equal(declined.type, 'StripeCardError');
  assert.equal(declined.payment_method.object, 'payment_method');
  const attached = await stripe.paymentMethods.attach('pm_card_chargeCustomerFail', { customer });
  assert.deepEqual(await cardsOf(customer), [attached.id]);
  const error = await refusal(offSession(attached.id, customer));
  assert.equal(error.code, 'card_declined');
});

test('a card that paid without a customer may not be used again', async () => {
  const paid = await stripe.paymentIntents.create(payment('pm_card_visa'));
  const again = await refusal(stripe.paymentIntents.create(payment(paid.payment_method)));
  assert.equal(again.type, 'StripeInvalidRequestError');
  assert.match(again.message, /previously used/);
});

test('a setup saves a card, which is then charged without its customer', async () => {
  const saved = await setup('pm_card_visa');
  assert.deepEqual([saved.object, saved.status, saved.usage], ['setup_intent', 'succeeded', 'off_session']);
  assert.deepEqual(await cardsOf(saved.customer), [saved.payment_method]);
  for (let time = 1; time <= 2; time += 1) {
    const paid = await offSession(saved.payment_method, saved.customer);
    assert.deepEqual([paid.status, paid.payment_method], ['succeeded', saved.payment_method]);
  }
  const expand = ['data.customer', 'data.payment_method'];
  const { data } = await stripe.paymentIntents.list({ customer: saved.customer, expand });
  assert.deepEqual(data.map((intent) => intent.customer.id), [saved.customer, saved.customer]);
  assert.equal(data[0].payment_method.card.last4, '4242');
});

test('a setup whose bank asks saves the card when the customer agrees, and only then', async () => {
  const asked = await setup('pm_card_authenticationRequiredOnSetup');
  assert.equal(asked.status, 'requires_action');
  assert.deepEqual(await cardsOf(asked.customer), []);
  const landed = await authenticate(asked, 'complete');
  assert.equal(landed.get('setup_intent'), asked.id);
  assert.equal(landed.get('redirect_status'), 'succeeded');
  const saved = await stripe.setupIntents.retrieve(asked.id);
  assert.deepEqual([saved.status, saved.next_action], ['succeeded', null]);
  const paid = await offSession(saved.payment_method, saved.customer);
  assert.equal(paid.status, 'succeeded');

  const refused = await setup('pm_card_authenticationRequiredOnSetup');
  assert.equal((await authenticate(refused, 'fail')).get('redirect_status'), 'failed');
  const failed = await stripe.setupIntents.retrieve(refused.id);
  assert.equal(failed.status, 'requires_payment_method');
  assert.equal(failed.last_setup_error.code, 'setup_intent_authentication_failure');
  assert.deepEqual(await cardsOf(refused.customer), []);
});

test('a setup with a card that declines says so, and another card completes it', async () => {
  const error = await refusal(setup('pm_card_chargeDeclined'));
  assert.deepEqual([error.type, error.code], ['StripeCardError', 'card_declined']);
  const { id, status, last_setup_error } = error.setup_intent;
  assert.deepEqual([status, last_setup_error.code], ['requires_payment_method', 'card_declined']);
  const card = { payment_method: 'pm_card_visa', return_url: RETURN_URL };
  assert.equal((await stripe.setupIntents.confirm(id, card)).status, 'succeeded');
  await assert.rejects(stripe.setupIntents.cancel(id), { code: 'setup_intent_unexpected_state' });
});

test('a setup is canceled and listed', async () => {
  const { id: customer } = await stripe.customers.create();
  const { id } = await stripe.setupIntents.create({ customer });
  assert.equal((await stripe.setupIntents.cancel(id)).status, 'canceled');
  assert.deepEqual(ids((await stripe.setupIntents.list({ customer })).data), [id]);
});

test('a card that must always ask declines without its customer, and pays with them', async () => {
  const saved = await setup('pm_card_authenticationRequired');
  await authenticate(saved, 'complete');
  const [method] = await cardsOf(saved.customer);
  const error = await refusal(offSession(method, saved.customer));
  assert.deepEqual([error.type, error.code], ['StripeCardError', 'authentication_required']);
  assert.equal(error.decline_code, 'authentication_required');
  assert.equal(error.payment_method.id, method);
  const { id } = error.payment_intent;
  const card = { payment_method: method, return_url: RETURN_URL };
  const asked = await stripe.paymentIntents.confirm(id, card);
  assert.equal(asked.status, 'requires_action');
  await authenticate(asked, 'complete');
  assert.equal((await stripe.paymentIntents.retrieve(id)).status, 'succeeded');
});

test('a payment saves its card for later', async () => {
  const { id: customer } = await stripe.customers.create();
  const first = payment('pm_card_visa', { customer, setup_future_usage: 'off_session' });
  const paid = await stripe.paymentIntents.create(first);
  assert.deepEqual(await cardsOf(customer), [paid.payment_method]);
  assert.equal((await offSession(paid.payment_method, customer)).status, 'succeeded');
});

test("a customer's card pays for no other customer", async () => {
  const saved = await setup('pm_card_visa');
  const { id: other } = await stripe.customers.create();
  for (const customer of [other, undefined]) {
    const parameters = payment(saved.payment_method, { customer });
    await assert.rejects(stripe.paymentIntents.create(parameters), {
      type: 'StripeInvalidRequestError',
      statusCode: 400,
    });
  }
});
