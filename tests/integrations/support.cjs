// What the walks share: an account and its webhooks, and steps that print themselves with the requests
// that they send.

'use strict';

const { randomUUID } = require('node:crypto');
const diagnostics = require('node:diagnostics_channel');
const { EventEmitter, once } = require('node:events');
const http = require('node:http');

const { CHARGE_ONCE_URL, DEV_API_KEY } = process.env;

// Any wait for a delivery ends here, as a failure.
const PATIENCE_MS = 30_000;

/** The requests of the step that runs, each with its `response` if one came. */
let requests = [];
let count = 0;
diagnostics.subscribe('http.client.request.start', ({ request }) => {
  // Node tells it twice of a request that is written when its socket is assigned.
  if (requests.some((each) => each.request === request)) return;
  requests.push({ request });
  count += 1;
});
diagnostics.subscribe('http.client.response.finish', ({ request, response }) => {
  const sent = requests.find((each) => each.request === request);
  if (sent) sent.response = response;
});

// Of those by `fetch`, what a program sends to Stripe, and not what is asked below.
const { fetch } = globalThis;
globalThis.fetch = async (input, init) => {
  const { hostname, pathname, search } = new URL(input?.url ?? input);
  if (hostname !== 'api.stripe.com') return fetch(input, init);
  const { method = 'GET', headers } = init ?? input;
  const getHeader = (name) => new Headers(headers).get(name);
  const sent = { request: { method, path: pathname + search, getHeader } };
  requests.push(sent);
  count += 1;
  const response = await fetch(input, init);
  sent.response = { statusCode: response.status };
  return response;
};

/** Plans that the replies to requests of this route are lost, for good. Returns what ends it. */
async function loseReplies(apiKey, route) {
  const { id } = await post('/test/faults', apiKey, { route, fault: 'reply_lost', every: 1 });
  return () => ask('DELETE', `/test/faults/${id}`, apiKey);
}

/** Does one step of a walk. A failure names it, and what was sent. */
async function step(sentence, work) {
  requests = [];
  try {
    const result = await work(requests);
    say('ok', sentence);
    return result;
  } catch (error) {
    say('FAILED', sentence);
    throw error;
  }
}

function say(outcome, sentence) {
  console.log(`  ${outcome.padEnd(6)}  ${sentence}`);
  for (const { request, response } of requests) {
    const answer = response?.statusCode ?? 'no reply';
    console.log(`            ${request.method} ${request.path} ${answer}`);
  }
}

/** Runs a walk to its end, or to its first failed step. */
function walk(name, steps) {
  const ended = steps().then(() => console.log(`${name}: ok, ${count} requests`));
  ended.then(() => process.exit(0)).catch((error) => {
    console.error(error);
    process.exit(1);
  });
}

/** Asks charge-once at its own address. */
async function ask(method, path, apiKey, parameters) {
  const reply = await fetch(CHARGE_ONCE_URL + path, {
    method,
    headers: {
      authorization: `Bearer ${apiKey}`,
      'content-type': 'application/json',
      'idempotency-key': randomUUID(),
    },
    body: parameters && JSON.stringify(parameters),
  });
  const body = await reply.json();
  if (!reply.ok) throw new Error(`${path}: ${reply.status} ${JSON.stringify(body)}`);
  return body;
}

const get = (...given) => ask('GET', ...given);
const post = (...given) => ask('POST', ...given);

/**
 * An account of the walk's own: its API key, the secret of its endpoint, and what arrives there. Without types of
 * events, the program makes the endpoint, below `origin`.
 */
async function account(...eventTypes) {
  const { api_key: apiKey } = await post('/test/accounts', DEV_API_KEY, {});
  const deliveries = [];
  const arrivals = new EventEmitter();
  const server = http.createServer(async (request, response) => {
    const parts = [];
    for await (const part of request) parts.push(part);
    const body = Buffer.concat(parts);
    deliveries.push({ url: request.url, body, headers: request.headers, event: JSON.parse(body) });
    response.end();
    arrivals.emit('delivery');
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const origin = `http://127.0.0.1:${server.address().port}`;
  const endpoint = { url: `${origin}/hook`, enabled_events: eventTypes };
  const { secret: webhookSecret } = eventTypes.length > 0 ? await post('/v1/webhook_endpoints', apiKey, endpoint) : {};

  /** Waits for the event of this type about this object, as it was delivered. */
  async function delivery(type, id) {
    const signal = AbortSignal.timeout(PATIENCE_MS);
    for (;;) {
      const found = deliveries.find(({ event }) => event.type === type && event.data.object.id === id);
      if (found) return found;
      await once(arrivals, 'delivery', { signal }).catch(() => {
        const arrived = deliveries.map(({ event }) => `${event.type} of ${event.data.object.id}`);
        throw new Error(`no ${type} of ${id} arrived, but: ${arrived.join(', ') || 'nothing'}`);
      });
    }
  }
  return { apiKey, origin, webhookSecret, delivery };
}

/** What the customer's bank would answer, on the page that an intent leads to. */
async function authenticate(intent, outcome) {
  const reply = await fetch(intent.next_action.redirect_to_url.url, {
    method: 'POST',
    redirect: 'manual',
    body: new URLSearchParams({ outcome }),
  });
  if (reply.status !== 303) throw new Error(`${reply.status}: ${await reply.text()}`);
  return new URL(reply.headers.get('location'));
}

module.exports = { account, authenticate, get, loseReplies, post, step, walk };
