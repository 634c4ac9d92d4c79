// Proves the retry code of client.mjs against every fault that the server can be asked for.

import { randomUUID } from 'node:crypto';

import { beforeEach, expect, test } from 'vitest';

import { Client, Refused, Unknown } from './client.mjs';

const URL = process.env.CHARGE_ONCE_URL ?? 'http://127.0.0.1:8080';
const DEV_API_KEY = process.env.DEV_API_KEY ?? 'sk_test_ChargeOnceDevelopmentKey00';

const CHARGE = { amount: 2000, currency: 'usd', source: 'tok_visa' };

const FAULTS = [
  'reply_lost',
  'reply_lost; requests=3',
  'request_lost',
  'request_lost; requests=3',
  'delay; seconds=2; requests=2',
  '500; requests=2',
  '503; requests=2',
  '429; requests=2',
  'in_use; seconds=1',
];

let apiKey;

// An account of the test's own, without any charge.
beforeEach(async () => {
  const account = await new Client(URL, DEV_API_KEY).post('/test/accounts', randomUUID(), {});
  apiKey = account.api_key;
});

function client(fault, options = {}) {
  // Shorter than the delays above.
  return new Client(URL, apiKey, { timeout: 1000, headers: fault ? { fault } : {}, ...options });
}

async function ids() {
  return (await client().charges()).map((charge) => charge.id);
}

test.for(FAULTS)('a charge that meets "%s" is made once', async (fault) => {
  const charge = await client(fault).charge('order-1', CHARGE);
  expect(charge.status).toBe('succeeded');
  expect(await ids()).toEqual([charge.id]);
});

test('a lost reply of the execution is found again', async () => {
  const charge = await client().charge('order-1', { ...CHARGE, source: 'tok_lostReply' });
  expect(await ids()).toEqual([charge.id]);
});

test('two faults in a row', async () => {
  const unlucky = client('request_lost', { attempts: 1 });
  await expect(unlucky.charge('order-1', CHARGE)).rejects.toThrow(Unknown);
  const charge = await client('reply_lost').charge('order-1', CHARGE);
  expect(await ids()).toEqual([charge.id]);
});

test('what is not known is not called a failure', async () => {
  const unlucky = client('reply_lost; requests=100', { attempts: 2 });
  await expect(unlucky.charge('order-1', CHARGE)).rejects.toThrow(Unknown);
  // It was made: the same key says so.
  expect(await ids()).toHaveLength(1);
  await client().charge('order-1', CHARGE);
  expect(await ids()).toHaveLength(1);
});

test.for([undefined, 'reply_lost'])('a decline is an answer, also after %s', async (fault) => {
  const declined = { ...CHARGE, source: 'tok_chargeDeclined' };
  const refused = await client(fault).charge('order-1', declined).catch((error) => error);
  expect(refused).toBeInstanceOf(Refused);
  expect(refused.error.code).toBe('card_declined');
  expect(await ids()).toHaveLength(1);
});

test('an expired key is a new charge', async () => {
  const first = await client().charge('order-1', CHARGE);
  await client().post('/test/expire_keys', randomUUID(), {});
  const second = await client().charge('order-1', CHARGE);
  expect(second.id).not.toBe(first.id);
});

// The mistake that this suite is for.
class NewKeys extends Client {
  attempt(path, key, body) {
    return super.attempt(path, randomUUID(), body);
  }
}

test('the suite finds a client that makes a new key for each attempt', async () => {
  const careless = new NewKeys(URL, apiKey, { attempts: 3, headers: { fault: 'reply_lost' } });
  await expect(careless.charge('order-1', CHARGE)).rejects.toThrow(Unknown);
  expect(await ids()).toHaveLength(3);
});
