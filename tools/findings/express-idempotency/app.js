// The application of the READMEs of express-idempotency and of its Redis adapter.
const { randomUUID } = require('node:crypto');
const { appendFile } = require('node:fs/promises');
const { setTimeout: pause } = require('node:timers/promises');
const express = require('express');
const idempotency = require('express-idempotency');
const RedisAdapter = require('express-idempotency-redis-adapter').default;

const { PORT, REDIS_PORT, EFFECTS } = process.env;
const adapter = new RedisAdapter({ connectionConfig: { url: `redis://127.0.0.1:${REDIS_PORT}` } });
const failed = new Set();
const app = express();
// The default intent validator compares bodies, so they are read first.
app.use(express.json());
app.use(idempotency.idempotency({ dataAdapter: adapter }));

// Whether it is the first request that says so.
function fails(note, does) {
  return does && !failed.has(note) && failed.add(note);
}

app.post(['/charges', '/refunds'], async (req, res) => {
  if (idempotency.getSharedIdempotencyService().isHit(req)) return;
  const { amount, note, do: does } = req.body;
  if (does === 'refuse' || fails(note, does === 'refuse_once')) {
    res.status(402).json({ error: 'declined' });
    return;
  }
  if (fails(note, does === 'fail')) {
    res.status(503).json({ error: 'the database is gone' });
    return;
  }
  await appendFile(EFFECTS, `${note}\n`);
  await pause(does === 'slow' ? 2000 : 50);
  res.status(201).json({ id: randomUUID(), amount });
});

adapter.connect().then(() => app.listen(Number(PORT), '127.0.0.1'));
