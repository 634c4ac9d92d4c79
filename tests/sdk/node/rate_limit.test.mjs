// Too many requests raise the error for rate limits, and the SDK's retry succeeds.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Server, chargesOf, client, configTable, ids, order, requires } from './support.mjs';

const known = requires('rate-limit') || configTable().includes('`RATE_LIMIT`');
const skip = known ? false : 'the service has no rate limit';

test("too many requests are a rate limit error, and the SDK's retry gets through", { skip }, async (t) => {
  const parameters = order();
  const server = await Server.start({ RATE_LIMIT: '2' });
  t.after(() => server.kill());
  const impatient = client(server.url, { maxNetworkRetries: 0 });
  const flood = async () => {
    for (let number = 0; number < 100; number += 1) await impatient.charges.list();
  };
  await assert.rejects(flood(), {
    type: 'StripeRateLimitError',
    rawType: 'rate_limit_error',
    statusCode: 429,
    code: 'rate_limited',
  });
  const charge = await client(server.url).charges.create(parameters);
  assert.deepEqual(ids(await chargesOf(parameters)), [charge.id]);
});
