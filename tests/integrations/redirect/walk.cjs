// Clients that name Stripe's API: each lands at charge-once or is refused, and none connects to Stripe.

'use strict';

const assert = require('node:assert/strict');
const dns = require('node:dns');
const { once } = require('node:events');
const http = require('node:http');
const http2 = require('node:http2');
const https = require('node:https');
const net = require('node:net');
const tls = require('node:tls');

const Stripe = require('stripe');
const undici = require('undici');

const { account, get, step, walk } = require('../support.cjs');

const CUSTOMERS = 'https://api.stripe.com/v1/customers';
const { hostname, port } = new URL(process.env.CHARGE_ONCE_URL);

// A connection by name begins with the look-up of its address.
const lookedUp = [];
const { lookup } = dns;
dns.lookup = (name, ...rest) => {
  if (!name.endsWith('stripe.com')) return lookup(name, ...rest);
  lookedUp.push(name);
  return rest.at(-1)(new Error(`a client looked up ${name}`));
};

async function read(response) {
  const parts = [];
  for await (const part of response) parts.push(part);
  return JSON.parse(Buffer.concat(parts));
}

/** Sends a request, as node:https does it. */
async function sent(request, body) {
  request.end(body);
  const [response] = await once(request, 'response');
  return read(response);
}

walk('redirect', async () => {
  const { apiKey } = await account('*');
  const headers = (key) => ({
    authorization: `Bearer ${apiKey}`,
    'content-type': 'application/x-www-form-urlencoded',
    'idempotency-key': key,
  });
  const post = (email) => ({ method: 'POST', headers: headers(email), body: `email=${email}` });
  const create = async (stripe, email) => stripe.customers.create({ email });
  const options = { hostname: 'api.stripe.com', path: '/v1/customers', method: 'POST' };

  const landing = {
    'https.request(options)': (email) =>
      sent(https.request({ ...options, headers: headers(email) }), `email=${email}`),
    'https.request(url, options)': (email) => sent(https.request(CUSTOMERS, post(email)), `email=${email}`),
    'fetch(url, options)': async (email) => (await fetch(CUSTOMERS, post(email))).json(),
    'fetch(request)': async (email) => (await fetch(new Request(CUSTOMERS, post(email)))).json(),
    'fetch(url, options) through another dispatcher': async (email) => {
      const dispatcher = new undici.Agent();
      return (await fetch(CUSTOMERS, { ...post(email), dispatcher })).json();
    },
    'fetch of undici': async (email) => (await undici.fetch(CUSTOMERS, post(email))).json(),
    'request of undici': async (email) => (await undici.request(CUSTOMERS, post(email))).body.json(),
    "Stripe's SDK": (email) => create(new Stripe(apiKey), email),
    "Stripe's SDK, which is imported": async (email) => {
      const { default: Imported } = await import('stripe');
      return create(new Imported(apiKey), email);
    },
    "Stripe's SDK, with createFetchHttpClient": (email) =>
      create(new Stripe(apiKey, { httpClient: Stripe.createFetchHttpClient() }), email),
  };
  for (const [index, [name, client]] of Object.entries(landing).entries()) {
    await step(`${name} creates a customer here`, async () => {
      const email = `client-${index}@example.com`;
      const made = await client(email);
      const { data } = await get(`/v1/customers?email=${email}`, apiKey);
      assert.deepEqual(data.map(({ id }) => id), [made.id]);
    });
  }
  await step('https.get lists them', async () => {
    const { authorization } = headers();
    const [response] = await once(https.get(CUSTOMERS, { headers: { authorization } }), 'response');
    assert.equal((await read(response)).data.length, Object.keys(landing).length);
  });

  const refused = {
    'a connection': () => net.connect(443, 'api.stripe.com'),
    'a connection with TLS': () => tls.connect({ host: 'api.stripe.com', port: 443 }),
    'HTTP/2': () => http2.connect('https://api.stripe.com'),
    "undici's own agent": () => undici.request(CUSTOMERS, { dispatcher: new undici.Agent() }),
    "another host of Stripe's": () => https.get('https://files.stripe.com/v1/files'),
    'fetch from it': () => fetch('https://files.stripe.com/v1/files'),
    'a tunnel': async () => http.request({ hostname, port, method: 'CONNECT', path: 'api.stripe.com:443' }),
    'a request to a proxy': async () => http.request({ hostname, port, path: CUSTOMERS }),
    'TLS in a tunnel': () => tls.connect({ socket: net.connect(port, hostname), servername: 'api.stripe.com' }),
  };
  for (const [name, connect] of Object.entries(refused)) {
    await step(`${name} is refused`, async () => {
      const failure = await outcome(connect());
      assert.match(`${failure.cause ?? failure}`, /refuses a connection to \w+\.stripe\.com/);
    });
  }

  await step('no client looked up an address of Stripe', async () => assert.deepEqual(lookedUp, []));
});

/** The error with which a connection or a promise ends. */
async function outcome(connection) {
  const ended = connection instanceof Promise ? connection : once(connection, 'close');
  return ended.then(() => assert.fail('it was not refused'), (error) => error);
}
