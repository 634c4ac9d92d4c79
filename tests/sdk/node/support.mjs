// Support for all tests: clients, private servers, and a network that loses replies.

import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import net from 'node:net';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';

import Stripe from 'stripe';

export const URL_OF_SERVER = process.env.CHARGE_ONCE_URL;
const API_KEY = process.env.CHARGE_ONCE_API_KEY;
const PROGRAM = process.env.CHARGE_ONCE;

// Any wait for a condition ends here, as a failure.
const PATIENCE_MS = 30_000;

/** The SDK as it comes: only the address of the API is another one. */
export function client(url = URL_OF_SERVER, { apiKey = API_KEY, ...options } = {}) {
  const { hostname, port } = new URL(url);
  return new Stripe(apiKey, { protocol: 'http', host: hostname, port, ...options });
}

/** A key or a reference that no other test uses. */
export const unique = (what) => `${what}-${randomUUID()}`;

/** The parameters of a charge, for a customer whose charges can be counted. */
export const order = (parameters = {}) => ({
  amount: 2000,
  currency: 'usd',
  source: 'tok_visa',
  customer: unique('customer'),
  ...parameters,
});

/** The parameters of an intent that is confirmed at once with this card. */
export const payment = (payment_method, parameters = {}) => ({
  amount: 2000,
  currency: 'usd',
  payment_method,
  confirm: true,
  return_url: RETURN_URL,
  ...parameters,
});

/** Where customers land after their bank has asked them. */
export const RETURN_URL = 'https://shop.example/done?order=6735';

/** Answers for the customer's bank, and gives back where the customer lands. */
export async function authenticate({ next_action }, outcome) {
  assert.equal(next_action.type, 'redirect_to_url');
  const { url, return_url } = next_action.redirect_to_url;
  const reply = await fetch(url, {
    method: 'POST',
    redirect: 'manual',
    body: new URLSearchParams({ outcome }),
  });
  assert.equal(reply.status, 303, await reply.text());
  const landed = new URL(reply.headers.get('location'));
  assert.ok(landed.href.startsWith(return_url), landed.href);
  return landed.searchParams;
}

/** The error that a call throws. */
export const refusal = (call) =>
  call.then(
    () => assert.fail('nothing was thrown'),
    (error) => error,
  );

/** The charges that really are there, asked for without the network in between. */
export async function chargesOf({ customer }) {
  return (await client().charges.list({ customer })).data;
}

export const ids = (objects) => objects.map(({ id }) => id);

export const isReplay = (object) =>
  object.lastResponse.headers['idempotent-replayed'] === 'true';

/** Whether a server is working on the request with this key. */
export const isInFlight = (key) =>
  client()
    .rawRequest('GET', `/v1/idempotency-keys/${key}`)
    .then(
      ({ status }) => status === 'in_flight',
      () => false,
    );

/** For lists that must hold a test's own objects and no others. */
export function apiKeyOfANewAccount() {
  const output = execFileSync(PROGRAM, ['api-key', 'create', '--account', unique('account')]);
  return output.toString().split('\n')[0];
}

/** The table of variables that the program knows. */
export const configTable = () => execFileSync(PROGRAM, ['config-table']).toString();

/** Whether `feature` must be there: see `run`. */
export const requires = (feature) =>
  process.env.SDK_TEST_REQUIRES.split(' ').includes(feature);

/** A server process of a test's own, on the same database; it keeps its port for life. */
export class Server {
  address = '127.0.0.1:0';

  constructor(variables = {}) {
    this.variables = variables;
  }

  static async start(variables) {
    const server = new Server(variables);
    await server.start();
    return server;
  }

  async start() {
    const env = { ...process.env, BIND_ADDRESS: this.address, ...this.variables };
    this.process = spawn(PROGRAM, { env, stdio: ['ignore', 'pipe', 'inherit'] });
    const [banner] = await once(createInterface(this.process.stdout), 'line');
    this.url = banner.split(' ').at(-1);
    this.address = this.url.replace('http://', '');
  }

  async kill() {
    this.process.kill('SIGKILL');
    await once(this.process, 'exit');
  }

  async killAndRestart() {
    await this.kill();
    await this.start();
  }
}

/**
 * A TCP proxy in front of a server, which loses what it is told to. `statuses` are those of the
 * replies that came through.
 */
export class Network {
  lost = 0;
  statuses = [];
  cuts = new Set();

  static async start({
    url = URL_OF_SERVER,
    loseReplies = 0,
    loseRequests = 0,
    loseBodies = 0,
    whenLost = () => {},
  }) {
    const network = new Network();
    const { hostname, port } = new URL(url);
    const toLose = { replies: loseReplies, requests: loseRequests, bodies: loseBodies };
    network.listener = net.createServer((fromClient) => {
      const fromServer = net.connect({ host: hostname, port });
      const cut = () => {
        fromClient.destroy();
        fromServer.destroy();
        network.cuts.delete(cut);
      };
      network.cuts.add(cut);
      let isWithoutBody = false;
      const pass = (bytes, target, what) => {
        const text = bytes.toString('latin1');
        if (what === 'replies') {
          if (text.startsWith('HTTP/1.1 ')) network.statuses.push(Number(text.slice(9, 12)));
          target.write(bytes);
        } else if (toLose.bodies > 0) {
          // The head arrives, and the server waits for the body until it answers and closes.
          toLose.bodies -= 1;
          isWithoutBody = true;
          const end = text.indexOf('\r\n\r\n') + 4;
          assert.ok(end > 4, 'the head is in one piece');
          target.write(bytes.subarray(0, end));
        } else if (!isWithoutBody) {
          target.write(bytes);
        }
      };
      const forward = (source, target, what) => {
        source.on('data', (bytes) => {
          if (toLose[what] === 0) {
            pass(bytes, target, what);
            return;
          }
          toLose[what] -= 1;
          network.lost += 1;
          // A reply that has arrived here is committed, so the fault happens after the commit.
          Promise.resolve(whenLost()).finally(cut);
        });
        source.on('close', cut);
        // The server is down, so close the connection too.
        source.on('error', cut);
      };
      forward(fromClient, fromServer, 'requests');
      forward(fromServer, fromClient, 'replies');
    });
    network.listener.listen(0, '127.0.0.1');
    await once(network.listener, 'listening');
    network.url = `http://127.0.0.1:${network.listener.address().port}`;
    return network;
  }

  /** Connections that are kept alive would keep this process alive too. */
  close() {
    this.listener.close();
    this.cuts.forEach((cut) => cut());
  }
}

/** Polls until `condition` gives something, and gives it back. */
export async function eventually(what, condition) {
  const deadline = Date.now() + PATIENCE_MS;
  while (Date.now() < deadline) {
    const found = await condition();
    if (found) return found;
    await sleep(50);
  }
  throw new Error(`never happened: ${what}`);
}
