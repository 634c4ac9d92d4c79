// Everyday use: the server understands the SDK, and the SDK understands the replies.

import assert from 'node:assert/strict';
import { before, test } from 'node:test';

import { apiKeyOfANewAccount, chargesOf, client, ids, order, unique } from './support.mjs';

const stripe = client();

test('a charge is created, retrieved, updated and listed', async () => {
  const parameters = order({
    description: 'Tee & Käse = 100 % a+b',
    metadata: { 'order id': '6735', 'note 1': 'a+b &=%' },
    receipt_email: 'jenny@example.com',
    statement_descriptor: 'CHARGE ONCE',
  });
  const charge = await stripe.charges.create(parameters);
  assert.equal(charge.lastResponse.statusCode, 201);
  assert.equal(charge.object, 'charge');
  assert.deepEqual([charge.amount, charge.currency], [2000, 'usd']);
  assert.deepEqual([charge.status, charge.paid, charge.captured], ['succeeded', true, true]);
  for (const name of ['customer', 'description', 'receipt_email', 'statement_descriptor']) {
    assert.equal(charge[name], parameters[name]);
  }
  assert.deepEqual(charge.metadata, parameters.metadata);
  assert.equal(charge.payment_method_details.card.last4, '4242');

  assert.deepEqual(await stripe.charges.retrieve(charge.id), charge);
  const updated = await stripe.charges.update(charge.id, {
    description: 'changed',
    metadata: { 'order id': '', more: 'yes' },
  });
  assert.equal(updated.description, 'changed');
  assert.deepEqual(updated.metadata, { 'note 1': 'a+b &=%', more: 'yes' });
  assert.deepEqual(await chargesOf(parameters), [updated]);
});

test('a card may be given by number', async () => {
  const card = { object: 'card', number: '5555555555554444' };
  const source = { ...card, exp_month: 12, exp_year: 2099, cvc: '123' };
  const charge = await stripe.charges.create(order({ source }));
  assert.deepEqual([charge.source.last4, charge.source.exp_year], ['4444', 2099]);
});

test('a charge is captured whole, without a body, or in part', async () => {
  let promised = await stripe.charges.create(order({ capture: false }));
  assert.deepEqual([promised.captured, promised.amount_captured], [false, 0]);
  let captured = await stripe.charges.capture(promised.id);
  assert.deepEqual([captured.captured, captured.amount_captured], [true, 2000]);

  promised = await stripe.charges.create(order({ capture: false }));
  captured = await stripe.charges.capture(promised.id, { amount: 500 });
  assert.deepEqual([captured.captured, captured.amount_captured], [true, 500]);
  assert.equal(captured.amount_refunded, 0);
  await assert.rejects(stripe.charges.capture(promised.id), { code: 'charge_already_captured' });
});

test('a charge is refunded in parts, and never beyond what was captured', async () => {
  const charge = await stripe.charges.create(order());
  const refund = await stripe.refunds.create({
    charge: charge.id,
    amount: 500,
    reason: 'requested_by_customer',
    metadata: { ticket: '7' },
  });
  assert.deepEqual([refund.amount, refund.charge, refund.status], [500, charge.id, 'succeeded']);
  assert.deepEqual(await stripe.refunds.retrieve(refund.id), refund);
  const updated = await stripe.refunds.update(refund.id, { metadata: { ticket: '8' } });
  assert.deepEqual(updated.metadata, { ticket: '8' });

  await assert.rejects(stripe.refunds.create({ charge: charge.id, amount: 1501 }), {
    code: 'refund_amount_too_large',
    param: 'amount',
  });
  const rest = await stripe.refunds.create({ charge: charge.id, expand: ['charge'] });
  assert.equal(rest.amount, 1500);
  assert.deepEqual([rest.charge.id, rest.charge.refunded], [charge.id, true]);
  await assert.rejects(stripe.refunds.create({ charge: charge.id }), {
    code: 'charge_already_refunded',
  });
});

test('arrays and maps of a raw request are understood', async () => {
  const items = [
    { description: 'tea', quantity: 2, unit_amount: 300 },
    { sku: 'cheese', quantity: 1, unit_amount: 1400 },
  ];
  const made = await stripe.rawRequest('POST', '/v1/orders', { currency: 'usd', items });
  assert.deepEqual([made.amount, made.status], [2000, 'open']);
  assert.equal(made.items[1].sku, 'cheese');
});

const lister = client(undefined, { apiKey: apiKeyOfANewAccount() });
const newestFirst = [];

before(async () => {
  for (let number = 0; number < 7; number += 1) {
    newestFirst.unshift(await lister.charges.create(order({ amount: 1000 + number })));
  }
});

test('auto-paging leads through everything, newest first', async () => {
  for (const limit of [1, 3, 7, 100]) {
    const pages = lister.charges.list({ limit });
    assert.equal((await pages).url, '/v1/charges');
    assert.deepEqual(ids(await pages.autoPagingToArray({ limit: 50 })), ids(newestFirst));
  }
});

test('auto-paging before a cursor leads back to the newest', async () => {
  const last = newestFirst.at(-1).id;
  for (const limit of [1, 2, 6, 100]) {
    const found = [];
    for await (const charge of lister.charges.list({ limit, ending_before: last })) {
      found.push(charge.id);
    }
    assert.deepEqual(found, ids(newestFirst).slice(0, -1).reverse());
  }
});

test('filters go with the pages', async () => {
  const now = Math.floor(Date.now() / 1000);
  const created = { gte: newestFirst.at(-1).created, lt: now + 60 };
  const pages = lister.charges.list({ limit: 2, created });
  assert.deepEqual(ids(await pages.autoPagingToArray({ limit: 50 })), ids(newestFirst));
  const later = await lister.charges.list({ created: { gt: now + 60 } });
  assert.deepEqual([later.data, later.has_more], [[], false]);
});

test('the refunds inside a charge have a url of their own, and are listed by it', async () => {
  const charge = await stripe.charges.create(order());
  const made = [];
  for (let number = 0; number < 12; number += 1) {
    made.unshift(await stripe.refunds.create({ charge: charge.id, amount: 1 }));
  }
  const { refunds } = await stripe.charges.retrieve(charge.id, { expand: ['refunds'] });
  assert.equal(refunds.url, `/v1/charges/${charge.id}/refunds`);
  assert.deepEqual([ids(refunds.data), refunds.has_more], [ids(made).slice(0, 10), true]);
  const next = `${refunds.url}?starting_after=${refunds.data.at(-1).id}`;
  const more = await stripe.rawRequest('GET', next);
  assert.deepEqual([ids(more.data), more.has_more], [ids(made).slice(10), false]);
  const pages = stripe.refunds.list({ charge: charge.id, limit: 5 });
  assert.deepEqual(ids(await pages.autoPagingToArray({ limit: 50 })), ids(made));
});

test('events tell what happened, and under which key', async () => {
  const mine = client(undefined, { apiKey: apiKeyOfANewAccount() });
  const idempotencyKey = unique('key');
  const charge = await mine.charges.create(order(), { idempotencyKey });
  const [event] = (await mine.events.list({ type: 'charge.succeeded', limit: 1 })).data;
  assert.equal(event.request.idempotency_key, idempotencyKey);
  assert.deepEqual(event.data.object, JSON.parse(JSON.stringify(charge)));
  assert.deepEqual(await mine.events.retrieve(event.id), event);

  await mine.refunds.create({ charge: charge.id });
  const forwards = await mine.events.list({ limit: 1 }).autoPagingToArray({ limit: 50 });
  const types = forwards.map(({ type }) => type);
  assert.deepEqual(types.at(-1), 'charge.succeeded');
  assert.deepEqual(types.slice(0, -1).sort(), ['charge.refunded', 'refund.created']);
  const pages = mine.events.list({ limit: 1, ending_before: event.id });
  const backwards = await pages.autoPagingToArray({ limit: 50 });
  assert.deepEqual(ids(backwards), ids(forwards).slice(0, -1).reverse());
});
