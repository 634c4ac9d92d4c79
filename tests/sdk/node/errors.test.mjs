// Every error has the class that code written for Stripe catches.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import Stripe from 'stripe';

import { chargesOf, client, ids, isReplay, order, unique } from './support.mjs';

/** The table's options, as this SDK names them. */
const asNodeNamesThem = (options = {}) => ({
  ...(options.api_key && { apiKey: options.api_key }),
  ...(options.stripe_account && { stripeAccount: options.stripe_account }),
  ...(options.idempotency_key && { idempotencyKey: options.idempotency_key }),
});

for (const row of JSON.parse(readFileSync(process.env.ERRORS, 'utf8'))) {
  const decline = row.decline_code ? `, ${row.decline_code}` : '';
  const param = row.param ? `, param ${row.param}` : '';
  const code = row.code ? ` ${row.code}` : '';
  const name = `Stripe${row.raises} ${row.status}${code}${decline}${param}: ${row.when}`;
  test(name, async () => {
    // Another test covers retries.
    const stripe = client(undefined, { maxNetworkRetries: 0 });
    const [resource, method] = row.do.split('.');
    const given = [row.id, row.with, asNodeNamesThem(row.options)];
    const error = await stripe[resource][method](...given.filter((argument) => argument)).then(
      () => assert.fail('nothing was thrown'),
      (thrown) => thrown,
    );
    assert.equal(error.type, `Stripe${row.raises}`);
    assert.ok(error instanceof Stripe.errors[`Stripe${row.raises}`]);
    assert.equal(error.statusCode, row.status);
    if (row.code) assert.equal(error.code, row.code);
    // In this SDK, a card error without a decline code has an empty one.
    assert.equal(error.decline_code || undefined, row.decline_code);
    assert.equal(error.param, row.param);
    assert.match(error.requestId, /^req_/);
    assert.ok(error.message);
    // Of a card that can't be right, there is no charge.
    if (row.raises === 'CardError' && !row.param) {
      const failed = await stripe.charges.retrieve(error.charge);
      assert.deepEqual([failed.status, failed.paid], ['failed', false]);
      assert.equal(failed.failure_code, row.code);
    }
  });
}

test('a key reused for another request is an idempotency error', async () => {
  const [parameters, options] = [order(), { idempotencyKey: unique('key') }];
  const first = await client().charges.create(parameters, options);
  for (const changed of [{ amount: 2100 }, { currency: 'eur' }, { description: 'more' }]) {
    await assert.rejects(client().charges.create({ ...parameters, ...changed }, options), {
      type: 'StripeIdempotencyError',
      statusCode: 400,
      code: 'idempotency_key_reused',
    });
  }
  assert.ok(isReplay(await client().charges.create(parameters, options)));
  assert.deepEqual(ids(await chargesOf(parameters)), [first.id]);
});

test('a decline that is retried is the same decline', async () => {
  const parameters = order({ source: 'tok_chargeDeclinedInsufficientFunds' });
  const options = { idempotencyKey: unique('key') };
  const failed = [];
  for (let attempt = 0; attempt < 2; attempt += 1) {
    await assert.rejects(client().charges.create(parameters, options), (error) => {
      assert.equal(error.decline_code, 'insufficient_funds');
      failed.push(error.charge);
      return true;
    });
  }
  assert.equal(failed[0], failed[1]);
  assert.deepEqual(ids(await chargesOf(parameters)), failed.slice(0, 1));
});
