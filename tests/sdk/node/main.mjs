// Runs the tests of this folder, and prints each name as a sentence.

import { readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { run } from 'node:test';
import { fileURLToPath } from 'node:url';

import Stripe from 'stripe';

const folder = dirname(fileURLToPath(import.meta.url));
const files = readdirSync(folder)
  .filter((name) => name.endsWith('.test.mjs'))
  .sort()
  .map((name) => join(folder, name));

let passed = 0;
const failures = [];

function say(outcome, { name, details }, why = '') {
  const seconds = (details.duration_ms / 1000).toFixed(2).padStart(6);
  console.log(`  ${outcome.padEnd(7)} ${seconds} s  ${name}${why}`);
}

console.log(`Node ${process.versions.node}, stripe ${Stripe.PACKAGE_VERSION}`);
run({ files, concurrency: false })
  .on('test:pass', (test) => {
    // A file is a test too, and contains the tests in it.
    if (files.includes(test.name)) return;
    if (test.skip === undefined) {
      passed += 1;
      say('ok', test);
    } else {
      say('skipped', test, `: ${test.skip}`);
    }
  })
  .on('test:fail', (test) => {
    failures.push(test);
    say('FAILED', test);
  })
  .on('test:stderr', ({ message }) => process.stderr.write(message))
  .on('end', () => {
    for (const { name, details } of failures) {
      console.log(`\nFAILED: ${name}`);
      console.log(details.error.cause ?? details.error);
    }
    console.log(`\n${passed} passed, ${failures.length} failed`);
    process.exitCode = failures.length > 0 || passed === 0 ? 1 : 0;
  })
  .resume();
