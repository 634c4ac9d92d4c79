// Supabase's sync engine, unmodified: it copies an account into a PostgreSQL, by lists and by webhooks.

'use strict';

const assert = require('node:assert/strict');

const { StripeSync, runMigrations } = require('@supabase/stripe-sync-engine');
const { Client } = require('pg');
const Stripe = require('stripe');

const { account, get, step, walk } = require('../support.cjs');

const connectionString = process.env.DATABASE_URL;

// What charge-once has: the engine's name in its result, its table, and the path of the API.
const KINDS = [
  ['customers', 'customers', '/v1/customers'],
  ['charges', 'charges', '/v1/charges'],
  ['setupIntents', 'setup_intents', '/v1/setup_intents'],
  ['paymentMethods', 'payment_methods', '/v1/payment_methods'],
  ['paymentIntents', 'payment_intents', '/v1/payment_intents'],
  ['refunds', 'refunds', '/v1/refunds'],
];

walk('sync-engine', async () => {
  const { apiKey, webhookSecret, delivery } = await account('*');
  const database = new Client({ connectionString });
  await database.connect();
  const rows = async (query, ...values) => (await database.query(query, values)).rows;
  // The shop.
  const stripe = new Stripe(apiKey);

  const made = await step('a customer saves a card, pays and is refunded in part', async () => {
    const return_url = 'https://shop.example/checkout';
    const customer = await stripe.customers.create({ email: 'ann@example.com', name: 'Ann Bo' });
    const card = { customer: customer.id, payment_method: 'pm_card_visa', confirm: true, return_url };
    const setup = await stripe.setupIntents.create(card);
    const intent = await stripe.paymentIntents.create({
      customer: customer.id,
      payment_method: setup.payment_method,
      amount: 2150,
      currency: 'usd',
      confirm: true,
      return_url,
    });
    const refund = await stripe.refunds.create({ payment_intent: intent.id, amount: 500 });
    return { customer, setup, intent, refund };
  });

  const options = {
    poolConfig: { connectionString },
    schema: 'stripe',
    stripeSecretKey: apiKey,
    stripeWebhookSecret: webhookSecret,
  };
  // Else the engine may pass over an update, as the last step shows.
  const sync = new StripeSync({ ...options, revalidateObjectsViaStripeApi: ['customer'] });

  await step('the engine makes its tables', () => runMigrations({ databaseUrl: connectionString, schema: 'stripe' }));

  await step('it copies all that the account has, kind by kind', async () => {
    const result = await sync.syncBackfill({ object: 'all' });
    const synced = Object.entries(result).filter(([, each]) => each.synced > 0).map(([kind]) => kind);
    assert.deepEqual(synced.sort(), KINDS.map(([kind]) => kind).sort());
    assert.equal(Object.keys(result).length, 17);
    for (const [, table, path] of KINDS) {
      // Stripe lists payment methods by customer only.
      const query = table === 'payment_methods' ? `?customer=${made.customer.id}` : '';
      const { data } = await get(path + query, apiKey);
      const copied = await rows(`SELECT id FROM stripe.${table}`);
      assert.deepEqual(copied.map(({ id }) => id), data.map(({ id }) => id), table);
    }
  });

  await step('what it copied is what was paid', async () => {
    const columns = 'amount_received, currency, customer, status';
    const [intent] = await rows(`SELECT ${columns} FROM stripe.payment_intents`);
    const customer = made.customer.id;
    assert.deepEqual(intent, { amount_received: 2150, currency: 'usd', customer, status: 'succeeded' });
  });

  await step('webhooks keep it current', async () => {
    await stripe.customers.update(made.customer.id, { name: 'Bo Ltd' });
    const second = await stripe.refunds.create({ payment_intent: made.intent.id });
    for (const [type, id] of [
      ['customer.created', made.customer.id],
      ['payment_method.attached', made.setup.payment_method],
      ['setup_intent.succeeded', made.setup.id],
      ['payment_intent.created', made.intent.id],
      ['payment_intent.succeeded', made.intent.id],
      ['charge.succeeded', made.intent.latest_charge],
      ['customer.updated', made.customer.id],
      ['refund.created', second.id],
      ['charge.refunded', made.intent.latest_charge],
    ]) {
      const { body, headers } = await delivery(type, id);
      await sync.processWebhook(body, headers['stripe-signature']);
    }
    const [customer] = await rows('SELECT name FROM stripe.customers');
    assert.equal(customer.name, 'Bo Ltd');
    const refunds = await rows('SELECT amount FROM stripe.refunds ORDER BY amount');
    assert.deepEqual(refunds.map((each) => each.amount), [500, 1650]);
  });

  await step('a delivery that was tampered with changes nothing', async () => {
    const { body, headers } = await delivery('customer.created', made.customer.id);
    const tampered = Buffer.from(`${body} `);
    await assert.rejects(sync.processWebhook(tampered, headers['stripe-signature']), /signature/);
  });

  await step('of two updates in one second it keeps the first (stripe/sync-engine#268)', async () => {
    const { id } = await stripe.customers.create({ name: 'version 0' });
    let events = [];
    for (let version = 1; events.length < 2; version += 1) {
      await stripe.customers.update(id, { name: `version ${version}` });
      const { data } = await get('/v1/events?type=customer.updated', apiKey);
      events = data.filter(({ created, data: { object } }) => object.id === id && created === data[0].created);
    }
    const [last, first] = events;
    const plain = new StripeSync(options);
    await plain.processEvent(first);
    await plain.processEvent(last);
    const [{ name }] = await rows('SELECT name FROM stripe.customers WHERE id = $1', id);
    assert.equal(name, first.data.object.name);
    assert.notEqual(name, (await get(`/v1/customers/${id}`, apiKey)).name);
  });
});
