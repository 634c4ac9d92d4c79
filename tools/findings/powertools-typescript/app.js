// A Lambda function as the documents of Powertools show it, with Redis. Below it is what API Gateway and Lambda do.
// CONTEXT=none wraps a function that is no handler. VALIDATED=1 turns payload validation on.
const { randomUUID } = require('node:crypto');
const { appendFile } = require('node:fs/promises');
const { createServer } = require('node:http');
const { text } = require('node:stream/consumers');
const { setTimeout: pause } = require('node:timers/promises');
const {
  IdempotencyAlreadyInProgressError,
  IdempotencyConfig,
  IdempotencyValidationError,
  makeIdempotent,
} = require('@aws-lambda-powertools/idempotency');
const { CachePersistenceLayer } = require('@aws-lambda-powertools/idempotency/cache');
const { createClient } = require('@redis/client');

const { CONTEXT, PORT, REDIS_PORT, EFFECTS, VALIDATED } = process.env;
const failed = new Set();

async function charge(event) {
  const { amount, note, do: does } = JSON.parse(event.body);
  if (does === 'fail' && !failed.has(note)) {
    failed.add(note);
    throw new Error('the database is gone');
  }
  if (does === 'refuse') return { statusCode: 402, body: JSON.stringify({ error: 'declined' }) };
  await appendFile(EFFECTS, `${note}\n`);
  await pause(does === 'slow' ? 2000 : 50);
  return { statusCode: 201, body: JSON.stringify({ id: randomUUID(), amount }) };
}

async function functionOfLambda() {
  const client = await createClient({ url: `redis://127.0.0.1:${REDIS_PORT}` }).connect();
  const idempotent = makeIdempotent(charge, {
    persistenceStore: new CachePersistenceLayer({ client }),
    config: new IdempotencyConfig({
      eventKeyJmesPath: 'headers."idempotency-key"',
      throwOnNoIdempotencyKey: true,
      payloadValidationJmesPath: VALIDATED && 'body',
    }),
  });
  return async (event, context) => {
    try {
      return await (CONTEXT === 'none' ? idempotent(event) : idempotent(event, context));
    } catch (error) {
      // Lambda's own answer to any error is 502. The documents name these errors.
      if (error instanceof IdempotencyAlreadyInProgressError) return { statusCode: 409, body: error.message };
      if (error instanceof IdempotencyValidationError) return { statusCode: 422, body: error.message };
      if (error.cause?.name === 'IdempotencyKeyError') return { statusCode: 400, body: error.message };
      console.error(error);
      return { statusCode: 502, body: error.message };
    }
  };
}

// The function's timeout.
const TIMEOUT_MS = 5000;

functionOfLambda().then((handler) => {
  const server = createServer(async (request, response) => {
    const deadline = Date.now() + TIMEOUT_MS;
    const { method: httpMethod, url: path, headers } = request;
    // A client that goes before its body has come.
    const body = await text(request).catch(() => undefined);
    if (body === undefined) return;
    const context = { getRemainingTimeInMillis: () => deadline - Date.now() };
    const reply = await handler({ httpMethod, path, headers, body }, context);
    response.writeHead(reply.statusCode, { 'content-type': 'application/json' }).end(reply.body);
  });
  server.listen(Number(PORT), '127.0.0.1');
});
