// Two replicas and a card processor, and Prometheus that scrapes them. All are private, and end with `close`.

import { spawn } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';

// How long a program may take until it answers.
const START_SECONDS_MAX = 60;

export const API_KEY = 'sk_test_ChargeOnceDevelopmentKey00';

// Seconds between two scrapes.
export const STEP = 5;

// An address that nothing listens on.
async function freeAddress() {
  const server = createServer().listen(0, '127.0.0.1');
  await new Promise((listening) => server.once('listening', listening));
  const { port } = server.address();
  await new Promise((closed) => server.close(closed));
  return `127.0.0.1:${port}`;
}

// Runs a program, and returns when it answers at `url`. What it says of errors is shown.
async function start(program, args, env, url) {
  const stdio = ['ignore', 'ignore', 'inherit'];
  const child = spawn(program, args, { env: { ...process.env, ...env }, stdio });
  for (let second = 0; second < START_SECONDS_MAX; second += 1) {
    if (child.exitCode !== null) {
      break;
    }
    if (await fetch(url).then(({ ok }) => ok, () => false)) {
      return child;
    }
    await pause(1000);
  }
  child.kill();
  throw new Error(`${program} does not answer at ${url}`);
}

// `databases` names the databases of the replicas and of the processor, and `folder` is for Prometheus.
export async function open(chargeOnce, databases, rules, folder) {
  const processor = await freeAddress();
  const programs = [
    await start(
      chargeOnce,
      ['processor'],
      {
        PROCESSOR_DATABASE_URL: databases.processor,
        PROCESSOR_BIND_ADDRESS: processor,
        RUST_LOG: 'off',
      },
      `http://${processor}/faults`,
    ),
  ];
  const replicas = [];
  const scraped = [];
  for (const _ of [1, 2]) {
    const [address, metrics] = [await freeAddress(), await freeAddress()];
    const env = {
      DATABASE_URL: databases.replicas,
      BIND_ADDRESS: address,
      METRICS_ADDRESS: metrics,
      DEV_API_KEY: API_KEY,
      PROCESSOR_URL: `http://${processor}`,
      PROCESSOR_TIMEOUT: '2s',
      IDEMPOTENCY_LEASE: '15s',
      IDEMPOTENCY_TTL: '60s',
      EXPIRY_SWEEP_INTERVAL: '15s',
      WEBHOOK_ALLOW_PRIVATE: 'true',
      RATE_LIMIT: '0',
      RUST_LOG: 'off',
    };
    programs.push(await start(chargeOnce, ['serve'], env, `http://${address}/readyz`));
    replicas.push(`http://${address}`);
    scraped.push(metrics);
  }

  const address = await freeAddress();
  const config = join(folder, 'prometheus.yml');
  // The syntax of JSON is YAML's, too.
  const settings = {
    global: { scrape_interval: `${STEP}s`, evaluation_interval: `${STEP}s` },
    rule_files: rules,
    scrape_configs: [{ job_name: 'charge-once', static_configs: [{ targets: scraped }] }],
  };
  await writeFile(config, JSON.stringify(settings));
  const prometheus = `http://${address}`;
  const args = [
    `--config.file=${config}`,
    `--storage.tsdb.path=${join(folder, 'data')}`,
    `--web.listen-address=${address}`,
    '--log.level=error',
  ];
  programs.push(await start('prometheus', args, {}, `${prometheus}/-/ready`));
  return {
    replicas,
    prometheus,
    processor: `http://${processor}`,
    close: () => programs.forEach((program) => program.kill()),
  };
}
