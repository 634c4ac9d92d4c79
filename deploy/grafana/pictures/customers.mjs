// Customers of a shop, who buy for so many seconds. In the middle, its card processor is silent for a while.

import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { setTimeout as pause } from 'node:timers/promises';

// Each sends one request after the other.
const CUSTOMERS = 12;

// The longest that a customer waits between two purchases.
const PAUSE_MS_MAX = 1000;

// What is bought, more often what stands here more often.
const CHOICES = [
  'charge', 'charge', 'payment', 'payment', 'order', 'order', 'checkout', 'refund', 'declined', 'mistaken', 'look',
];

const pick = (list) => list[Math.floor(Math.random() * list.length)];

// An HTTP server that takes webhooks, and refuses one in fifty.
async function receiver() {
  const server = createServer((request, response) => {
    request.resume();
    response.writeHead(Math.random() < 0.02 ? 503 : 200).end();
  }).listen(0, '127.0.0.1');
  await new Promise((listening) => server.once('listening', listening));
  return { server, url: `http://127.0.0.1:${server.address().port}` };
}

export async function buy({ replicas, processor }, apiKey, seconds) {
  const authorization = `Bearer ${apiKey}`;
  // A reply, or nothing: a connection may end without one.
  const send = (method, path, body, key = randomUUID()) =>
    fetch(`${pick(replicas)}${path}`, {
      method,
      headers: { authorization, 'content-type': 'application/json', 'idempotency-key': key },
      body: body && JSON.stringify(body),
    }).then(
      async (reply) => ({ status: reply.status, body: await reply.json() }),
      () => ({ status: 503 }),
    );
  // Sends a request until its answer is definite, with one key.
  const settle = async (path, body) => {
    const key = randomUUID();
    for (let attempt = 1; attempt <= 20; attempt += 1) {
      const { status, body: object } = await send('POST', path, body, key);
      if (status < 409) {
        // A client that lost the reply asks once more.
        if (Math.random() < 0.2) {
          await send('POST', path, body, key);
        }
        return object;
      }
      await pause(200 * attempt);
    }
    return undefined;
  };

  const { server, url } = await receiver();
  await send('POST', '/webhook_endpoints', { url, enabled_events: ['*'] });
  await send('PUT', '/inventory/mug', { quantity: 1_000_000 });

  const until = Date.now() + seconds * 1000;
  const mugs = { currency: 'usd', items: [{ sku: 'mug', quantity: 2, unit_amount: 1200 }] };
  const charge = (source) => ({ amount: 1 + Math.floor(Math.random() * 9999), currency: 'usd', source });
  const customer = async () => {
    while (Date.now() < until) {
      const choice = pick(CHOICES);
      if (choice === 'charge') {
        await settle('/charges', charge('tok_visa'));
      } else if (choice === 'payment') {
        const { amount, currency } = charge();
        const method = { payment_method: 'pm_card_visa', payment_method_types: ['card'] };
        await settle('/payment_intents', { amount, currency, ...method, confirm: true });
      } else if (choice === 'order') {
        await settle('/orders', mugs);
      } else if (choice === 'checkout') {
        await settle('/checkouts', { ...mugs, source: pick(['tok_visa', 'tok_visa', 'tok_chargeDeclined']) });
      } else if (choice === 'refund') {
        const paid = await settle('/charges', charge('tok_mastercard'));
        await settle('/refunds', { charge: paid?.id });
      } else if (choice === 'declined') {
        await settle('/charges', charge('tok_chargeDeclinedInsufficientFunds'));
      } else if (choice === 'mistaken') {
        await settle('/charges', { ...charge('tok_visa'), amount: 0 });
      } else {
        await send('GET', '/charges?limit=20');
      }
      await pause(Math.random() * PAUSE_MS_MAX);
    }
  };
  const silence = async () => {
    await pause(seconds * 500);
    const fault = { fault: 'drop_after', count: 150 };
    const headers = { 'Content-Type': 'application/json' };
    await fetch(`${processor}/faults`, { method: 'POST', headers, body: JSON.stringify(fault) });
    await pause(seconds * 100);
    await fetch(`${processor}/faults`, { method: 'DELETE' });
  };
  await Promise.all([silence(), ...Array.from({ length: CUSTOMERS }, customer)]);
  server.close();
  server.closeAllConnections();
}
