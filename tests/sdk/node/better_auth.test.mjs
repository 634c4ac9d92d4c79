// The calls of Better Auth's plugin for Stripe (@better-auth/stripe 1.7.6) that make no subscription.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import http from 'node:http';
import { test } from 'node:test';

import { apiKeyOfANewAccount, client, eventually, ids } from './support.mjs';

const USER = { id: 'user_1', email: 'ann@example.com', name: 'Ann Bo' };

/** The plugin searches first. Any error of that leads it to a list. */
async function customersByEmail(stripe, email) {
  try {
    const query = `email:"${email}" AND -metadata["customerType"]:"organization"`;
    return (await stripe.customers.search({ query, limit: 1 })).data;
  } catch (error) {
    assert.deepEqual([error.statusCode, error.code], [400, 'parameter_invalid']);
    return (await stripe.customers.list({ email, limit: 100 })).data;
  }
}

test('a user who signs up becomes a customer, once', async () => {
  const stripe = client(undefined, { apiKey: apiKeyOfANewAccount() });
  assert.deepEqual(await customersByEmail(stripe, USER.email), []);
  const made = await stripe.customers.create({
    email: USER.email,
    name: USER.name,
    metadata: { userId: USER.id, customerType: 'user' },
  });
  assert.deepEqual(made.metadata, { userId: USER.id, customerType: 'user' });
  assert.deepEqual(ids(await customersByEmail(stripe, USER.email)), [made.id]);
});

test('an organization is found among all customers by its metadata', async () => {
  const stripe = client(undefined, { apiKey: apiKeyOfANewAccount() });
  const of = (organizationId) => ({ organizationId, customerType: 'organization' });
  const made = [];
  for (const name of ['Bo Ltd', 'Tea Ltd', 'Cup Ltd']) {
    made.push(await stripe.customers.create({ name, metadata: of(name) }));
  }
  let found;
  for await (const customer of stripe.customers.list({ limit: 100 })) {
    if (customer.metadata.organizationId === 'Tea Ltd') found = customer;
  }
  assert.equal(found.id, made[1].id);
});

test('a user changes their email, and the customer follows unless deleted', async () => {
  const stripe = client(undefined, { apiKey: apiKeyOfANewAccount() });
  const { id } = await stripe.customers.create({ email: USER.email, name: USER.name });
  const before = await stripe.customers.retrieve(id);
  assert.ok(!before.deleted);
  assert.equal(before.email, USER.email);
  const after = await stripe.customers.update(id, { email: 'ann@example.org' });
  assert.deepEqual([after.email, after.name], ['ann@example.org', USER.name]);
  await stripe.customers.del(id);
  assert.equal((await stripe.customers.retrieve(id)).deleted, true);
});

test("events verify with Web Crypto's asynchronous check", async (t) => {
  const stripe = client(undefined, { apiKey: apiKeyOfANewAccount() });
  const deliveries = [];
  const server = http.createServer(async (request, response) => {
    const parts = [];
    for await (const part of request) parts.push(part);
    deliveries.push([Buffer.concat(parts), request.headers['stripe-signature']]);
    response.end();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const url = `http://127.0.0.1:${server.address().port}/api/auth/stripe/webhook`;
  const enabled_events = ['customer.created'];
  const { secret } = await stripe.webhookEndpoints.create({ url, enabled_events });
  const { id } = await stripe.customers.create({ email: USER.email });
  const [body, signature] = await eventually('a delivery', () => deliveries[0]);
  const event = await stripe.webhooks.constructEventAsync(body, signature, secret);
  assert.deepEqual([event.type, event.data.object.id], ['customer.created', id]);
});
