// The promise: a request that is retried, by the SDK or by its caller, charges once.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import {
  Network,
  Server,
  chargesOf,
  client,
  eventually,
  ids,
  isInFlight,
  isReplay,
  order,
  unique,
} from './support.mjs';

test('a reply lost after the commit is replayed to the retry under an automatic key', async (t) => {
  const parameters = order();
  const network = await Network.start({ loseReplies: 1 });
  t.after(() => network.close());
  const charge = await client(network.url).charges.create(parameters);
  assert.equal(network.lost, 1);
  assert.ok(isReplay(charge));
  const { headers } = charge.lastResponse;
  assert.notEqual(headers['original-request'], headers['request-id']);
  assert.deepEqual(ids(await chargesOf(parameters)), [charge.id]);
});

test('a reply lost after the commit is replayed to the retry under an explicit key', async (t) => {
  const [parameters, options] = [order(), { idempotencyKey: unique('key') }];
  const network = await Network.start({ loseReplies: 2 });
  t.after(() => network.close());
  const charge = await client(network.url).charges.create(parameters, options);
  assert.equal(network.lost, 2);
  assert.ok(isReplay(charge));

  const later = await client().charges.create(parameters, options);
  assert.equal(later.id, charge.id);
  assert.deepEqual(ids(await chargesOf(parameters)), [charge.id]);
});

test('without retries a closed connection is still retried, and charges once', async (t) => {
  const parameters = order();
  const network = await Network.start({ loseReplies: 1 });
  t.after(() => network.close());
  const stripe = client(network.url, { maxNetworkRetries: 0 });
  const charge = await stripe.charges.create(parameters);
  assert.equal(network.lost, 1);
  assert.ok(isReplay(charge));
  assert.deepEqual(ids(await chargesOf(parameters)), [charge.id]);
});

test('a request lost on its way is executed by the retry', async (t) => {
  const parameters = order();
  const network = await Network.start({ loseRequests: 1 });
  t.after(() => network.close());
  const charge = await client(network.url).charges.create(parameters);
  assert.equal(network.lost, 1);
  assert.ok(!isReplay(charge));
  assert.deepEqual(ids(await chargesOf(parameters)), [charge.id]);
});

test('a lost reply to a refund refunds once', async (t) => {
  const parameters = order();
  const { id } = await client().charges.create(parameters);
  const network = await Network.start({ loseReplies: 1 });
  t.after(() => network.close());
  const refund = await client(network.url).refunds.create({ charge: id, amount: 500 });
  assert.ok(isReplay(refund));
  assert.equal((await chargesOf(parameters))[0].amount_refunded, 500);
});

test('two charges without keys of their own are two charges', async () => {
  const parameters = order();
  const first = await client().charges.create(parameters);
  const second = await client().charges.create(parameters);
  assert.deepEqual(ids(await chargesOf(parameters)), [second.id, first.id]);
});

test('fifty calls at once with one key get one charge', async () => {
  const [parameters, options] = [order(), { idempotencyKey: unique('key') }];
  const calls = Array.from({ length: 50 }, () => client().charges.create(parameters, options));
  const made = await Promise.all(calls);
  assert.equal(new Set(ids(made)).size, 1);
  assert.equal(made.filter((charge) => !isReplay(charge)).length, 1);
  assert.deepEqual(ids(await chargesOf(parameters)), [made[0].id]);
});

test("a duplicate in flight waits for the first one's answer", async () => {
  const parameters = order({ source: 'tok_slow' });
  const options = { idempotencyKey: unique('key'), maxNetworkRetries: 0 };
  const calls = [1, 2].map(() => client().charges.create(parameters, options));
  const made = await Promise.all(calls);
  assert.equal(made[0].id, made[1].id);
  assert.deepEqual(made.map(isReplay).sort(), [false, true]);
  assert.equal((await chargesOf(parameters)).length, 1);
});

test('a duplicate that is told 409 is retried by the SDK', async (t) => {
  const parameters = order({ source: 'tok_slow' });
  const options = { idempotencyKey: unique('key') };
  const server = await Server.start({ IN_FLIGHT_WAIT_V1: '0s' });
  t.after(() => server.kill());
  const first = client(server.url).charges.create(parameters, options);
  await eventually('the first request is under way', () => isInFlight(options.idempotencyKey));
  const impatient = client(server.url, { maxNetworkRetries: 0 });
  await assert.rejects(impatient.charges.create(parameters, options), {
    type: 'StripeAPIError',
    statusCode: 409,
    code: 'idempotency_key_in_use',
  });
  const patient = client(server.url, { maxNetworkRetries: 6 });
  const second = await patient.charges.create(parameters, options);
  assert.ok(isReplay(second));
  assert.equal((await first).id, second.id);
  assert.equal((await chargesOf(parameters)).length, 1);
});

test('a body that stalls is 408 and retried by the SDK', async (t) => {
  const parameters = order();
  const network = await Network.start({ loseBodies: 1 });
  t.after(() => network.close());
  const charge = await client(network.url).charges.create(parameters);
  assert.deepEqual(network.statuses, [408, 201]);
  assert.ok(!isReplay(charge));
  assert.deepEqual(ids(await chargesOf(parameters)), [charge.id]);
});

test('a busy resource is 409 and retried by the SDK', async (t) => {
  // On a busy machine, a payment may be over before an update has waited its second.
  const statuses = await eventually('an update meets a payment', () => updateBusyOrder(t));
  assert.equal(statuses[0], 409);
  assert.equal(statuses.at(-1), 200);
});

// Updates an order that is being paid. Gives the statuses, or false if it met no payment.
async function updateBusyOrder(t) {
  const item = { quantity: 1, unit_amount: 2000 };
  const made = await client().rawRequest('POST', '/v1/orders', { currency: 'usd', items: [item] });
  const [path, idempotencyKey] = [`/v1/orders/${made.id}`, unique('key')];
  const network = await Network.start({});
  t.after(() => network.close());
  const patient = client(network.url, { maxNetworkRetries: 4 });
  // The payment locks its order for two seconds, longer than an update waits for it.
  const slow = { source: 'tok_slow' };
  const paid = client().rawRequest('POST', `${path}/pay`, slow, { idempotencyKey });
  await eventually('the payment is under way', () => isInFlight(idempotencyKey));
  const updated = await patient.rawRequest('POST', path, { metadata: { channel: 'web' } });
  assert.equal((await paid).status, 'paid');
  // A claimed key may not have its lock yet.
  if (updated.status === 'open') return false;
  assert.deepEqual([updated.status, updated.metadata.channel], ['paid', 'web']);
  const isUndisturbed = network.statuses.length === 1 && network.statuses[0] === 200;
  return !isUndisturbed && network.statuses;
}

test('an outage frees the key for the retry', async (t) => {
  const [parameters, options] = [order(), { idempotencyKey: unique('key') }];
  // This SDK doesn't read the replies that it retries, so their connections stay open until the server
  // closes them, and keep this process alive. So the test has a server of its own.
  const server = await Server.start();
  t.after(() => server.kill());
  const stripe = client(server.url);
  await assert.rejects(stripe.charges.create({ ...parameters, source: 'tok_outage' }, options), {
    type: 'StripeAPIError',
    statusCode: 503,
  });
  const charge = await stripe.charges.create(parameters, options);
  assert.ok(!isReplay(charge));
  assert.deepEqual(ids(await chargesOf(parameters)), [charge.id]);
});

test('a server killed after the commit replays to the retry after its restart', async (t) => {
  const parameters = order();
  const server = await Server.start();
  t.after(() => server.kill());
  const network = await Network.start({
    url: server.url,
    loseReplies: 1,
    whenLost: () => server.killAndRestart(),
  });
  t.after(() => network.close());
  const patient = client(network.url, { maxNetworkRetries: 6 });
  const charge = await patient.charges.create(parameters);
  assert.equal(network.lost, 1);
  assert.ok(isReplay(charge));
  assert.deepEqual(ids(await chargesOf(parameters)), [charge.id]);
});

test('a server killed while it charges charges once after its restart', async (t) => {
  const parameters = order({ source: 'tok_slow' });
  const options = { idempotencyKey: unique('key') };
  const server = await Server.start();
  t.after(() => server.kill());
  const patient = client(server.url, { maxNetworkRetries: 8 });
  const first = patient.charges.create(parameters, options);
  await sleep(1000);
  await server.kill();
  assert.deepEqual(await chargesOf(parameters), []);
  await server.start();
  const charge = await first;
  const again = await patient.charges.create(parameters, options);
  assert.ok(!isReplay(charge));
  assert.ok(isReplay(again));
  assert.equal(charge.id, again.id);
  assert.deepEqual(ids(await chargesOf(parameters)), [charge.id]);
});
