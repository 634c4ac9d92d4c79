// A small client of charge-once. It sends a charge again, under one key, until it knows the answer.

import { setTimeout as sleep } from 'node:timers/promises';

// The same request with the same key may end otherwise: the server did not answer for good.
const RETRIED = new Set([408, 409, 429, 500, 502, 503, 504]);

// A definite no. Another attempt needs a new key.
export class Refused extends Error {
  constructor(status, error) {
    super(`${status} ${error.code}`);
    Object.assign(this, { status, error });
  }
}

// No definite answer came. The charge may exist: only a retry with the same key finds out.
export class Unknown extends Error {}

export class Client {
  // `headers` go with every request. Times are in milliseconds.
  constructor(url, apiKey, { attempts = 8, pause = 100, timeout = 5000, headers = {} } = {}) {
    const authorization = `Bearer ${apiKey}`;
    this.headers = { authorization, 'content-type': 'application/json', ...headers };
    Object.assign(this, { url, attempts, pause, timeout });
  }

  // One charge, however often it is asked for. The caller keeps the key with its order.
  charge(key, parameters) {
    return this.post('/charges', key, parameters);
  }

  async post(path, key, parameters) {
    // Serialized once, so that every attempt is the same request.
    const body = JSON.stringify(parameters);
    for (let attempt = 0; attempt < this.attempts; attempt += 1) {
      if (attempt > 0) {
        await sleep(this.pause * 2 ** Math.min(attempt, 4) * (0.5 + Math.random() / 2));
      }
      const reply = await this.attempt(path, key, body);
      if (reply === undefined) continue;
      if (reply.status < 300) return reply.answer;
      if (!RETRIED.has(reply.status)) throw new Refused(reply.status, reply.answer.error);
    }
    throw new Unknown(`no definite answer after ${this.attempts} attempts`);
  }

  // Sends a request once. `undefined` is no reply, which says nothing about what the server did.
  async attempt(path, key, body) {
    try {
      const reply = await fetch(this.url + path, {
        method: 'POST',
        headers: { ...this.headers, 'idempotency-key': key },
        body,
        signal: AbortSignal.timeout(this.timeout),
      });
      return { status: reply.status, answer: await reply.json() };
    } catch {
      return undefined;
    }
  }

  // The newest hundred charges of the account.
  async charges() {
    const reply = await fetch(`${this.url}/charges?limit=100`, { headers: this.headers });
    return (await reply.json()).data;
  }
}
