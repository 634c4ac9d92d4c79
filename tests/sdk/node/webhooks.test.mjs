// The SDK's own check of signatures accepts the service's deliveries.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import http from 'node:http';
import { test } from 'node:test';

import { apiKeyOfANewAccount, client, eventually, ids, order, requires } from './support.mjs';

const probe = await client().webhookEndpoints.list().catch((error) => error);
const known = requires('webhooks') || probe.statusCode !== 404;
const skip = known ? false : 'the service has no webhooks';

/** A web server that keeps what is posted to it. */
async function receiver() {
  const deliveries = [];
  const server = http.createServer(async (request, response) => {
    const parts = [];
    for await (const part of request) parts.push(part);
    deliveries.push({
      body: Buffer.concat(parts).toString(),
      signature: request.headers['stripe-signature'],
    });
    response.end();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return { deliveries, server, url: `http://127.0.0.1:${server.address().port}/hook` };
}

test('a delivered event verifies, and a tampered or stale one does not', { skip }, async (t) => {
  const stripe = client(undefined, { apiKey: apiKeyOfANewAccount() });
  const { deliveries, server, url } = await receiver();
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const wanted = { url, enabled_events: ['charge.succeeded'] };
  const { secret } = await stripe.webhookEndpoints.create(wanted);
  assert.match(secret, /^whsec_/);
  const charge = await stripe.charges.create(order());
  const { body, signature } = await eventually('a delivery', () => deliveries[0]);

  const event = stripe.webhooks.constructEvent(body, signature, secret);
  assert.equal(event.type, 'charge.succeeded');
  assert.equal(event.data.object.id, charge.id);
  assert.deepEqual((await stripe.events.retrieve(event.id)).data.object, event.data.object);

  const refused = (...given) =>
    assert.throws(() => stripe.webhooks.constructEvent(...given), {
      type: 'StripeSignatureVerificationError',
    });
  const tampered = body.replace('2000', '2001');
  assert.notEqual(tampered, body);
  refused(tampered, signature, secret);
  refused(body, signature, 'whsec_of_somebody_else');
  refused(body, signature.replace('t=', 't=1'), secret);

  const tolerance = 300;
  const aged = (seconds) => [tolerance, undefined, Date.now() + seconds * 1000];
  stripe.webhooks.constructEvent(body, signature, secret, ...aged(240));
  refused(body, signature, secret, ...aged(360));
});

test('an endpoint is created, retrieved, updated, listed and deleted', { skip }, async () => {
  const stripe = client(undefined, { apiKey: apiKeyOfANewAccount() });
  const wanted = { url: 'https://example.com/hook', enabled_events: ['*'], description: 'mine' };
  const { id } = await stripe.webhookEndpoints.create(wanted);
  const found = await stripe.webhookEndpoints.retrieve(id);
  assert.deepEqual([found.url, found.enabled_events], [wanted.url, ['*']]);
  for (const [disabled, status] of [[true, 'disabled'], [false, 'enabled']]) {
    const updated = await stripe.webhookEndpoints.update(id, { disabled, description: status });
    assert.deepEqual([updated.status, updated.description], [status, status]);
  }
  const listed = await stripe.webhookEndpoints.list().autoPagingToArray({ limit: 50 });
  assert.deepEqual(ids(listed), [id]);
  const deleted = await stripe.webhookEndpoints.del(id);
  assert.deepEqual([deleted.id, deleted.deleted], [id, true]);
  await assert.rejects(stripe.webhookEndpoints.retrieve(id), { statusCode: 404 });
});
