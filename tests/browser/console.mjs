// The console in a real browser: what a person does first, and then every page on a desk and on a phone, in
// light and in dark. axe-core must find nothing on any of them.
//
//   CHARGE_ONCE_URL=… DEV_API_KEY=… CHROMIUM=… SCREENSHOTS=… node console.mjs

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { launch } from './launch.mjs';

const { CHARGE_ONCE_URL: url, DEV_API_KEY: apiKey, CHROMIUM, SCREENSHOTS } = process.env;

const axe = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

const browser = await launch(CHROMIUM);

const errors = [];
const elsewhere = [];

// A browser of its own, with its own cookies.
async function open(options) {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  page.setDefaultTimeout(90_000);
  page.on('pageerror', (error) => errors.push(error.message));
  // What the policy refuses, and what is not there.
  page.on('console', (message) => {
    // One page is asked for that is not there.
    const isMissing = message.location().url.endsWith('/unknown');
    if (message.type() === 'error' && !isMissing) errors.push(message.text());
  });
  page.on('request', (request) => {
    if (new URL(request.url()).origin !== url) elsewhere.push(request.url());
  });
  return page;
}

// A request of a client of the API, which the console shows.
async function send(path, key, body) {
  const reply = await fetch(url + path, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${apiKey}`,
      'content-type': 'application/json',
      'idempotency-key': key,
    },
    body: JSON.stringify(body),
  });
  return reply.json();
}

async function signIn(page) {
  await page.goto(`${url}/console`);
  assert.equal(new URL(page.url()).pathname, '/console/sign-in');
  await page.getByLabel('API key').fill(apiKey);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByRole('heading', { name: 'Requests', level: 1 }).waitFor();
}

async function press(page, name, says) {
  await page.getByRole('button', { name }).click();
  await page.locator('.says', { hasText: says }).waitFor();
}

// From the first page to a race, as a stranger would, without a document.
async function play(page) {
  await page.goto(url);
  await page.getByRole('link', { name: 'Console', exact: true }).click();
  await signIn(page);
  await page.getByRole('link', { name: 'Playground', exact: true }).click();
  await press(page, 'Send a charge', 'Executed: 1 charge.');
  await press(page, 'Retry it with the same key', 'the stored reply came back');
  await press(page, 'Change the amount, same key', 'the key belongs to another request');
  await page.getByRole('link', { name: 'The story of this key' }).click();
  const story = page.url();
  await page.locator('.says', { hasText: 'Executed once. 1 retry' }).waitFor();
  await page.getByRole('link', { name: 'Playground', exact: true }).click();
  await press(page, 'Lose the reply, and retry', 'The first reply was lost.');
  await press(page, 'Race 20 duplicates', '1 charge, 20 replies, all the same bytes');
  assert.equal(await page.locator('summary', { hasText: '201' }).count(), 20);
  return story;
}

// What no eye sees.
async function check(page, what) {
  const wide = await page.evaluate(
    () => document.documentElement.scrollWidth - document.documentElement.clientWidth,
  );
  assert.ok(wide <= 0, `${what} is ${wide} pixels wider than the screen`);
  // The page before a session names the key that every copy begins with.
  const isBefore = new URL(page.url()).pathname === '/console/sign-in';
  assert.ok(isBefore || !(await page.content()).includes(apiKey), `${what} shows the API key`);
  // Not as an element: the page's policy allows no script but its own.
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => globalThis.axe.run());
  const told = violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html)}`);
  assert.deepEqual(told, [], what);
}

// The first Tab leads to the link that skips the navigation, and it can be seen.
async function checkKeyboard(page) {
  await page.goto(`${url}/console`);
  await page.keyboard.press('Tab');
  const skip = page.getByRole('link', { name: 'Skip to the content' });
  assert.ok(await skip.evaluate((link) => link === document.activeElement));
  assert.ok((await skip.boundingBox()).x >= 0, 'the focused link is off the screen');
  await page.keyboard.press('Enter');
  assert.ok(await page.locator('main').evaluate((main) => main === document.activeElement));
}

// New requests appear by themselves, until the person stops that.
async function checkLive(page) {
  await page.goto(`${url}/console`);
  const key = `live-${randomUUID()}`;
  await send('/charges', key, { amount: 1200, currency: 'eur' });
  await page.getByRole('link', { name: key }).waitFor();
  await page.getByLabel('Update every two seconds').uncheck();
}

let last;
try {
  // Without any script, on a phone.
  const plain = await open({ javaScriptEnabled: false, viewport: { width: 360, height: 740 } });
  await play(plain);

  const order = { currency: 'usd', items: [{ quantity: 2, unit_amount: 900, sku: 'mug' }] };
  const { id: charge } = await send('/charges', randomUUID(), { amount: 4200, currency: 'usd' });
  await send('/refunds', randomUUID(), { charge, amount: 1200 });
  await send('/orders', randomUUID(), order);
  await send('/charges', randomUUID(), { amount: 4200, currency: 'usd', source: 'tok_chargeDeclined' });
  // It can't be reached, so its deliveries wait.
  const hook = { url: 'https://receiver.invalid/hook', enabled_events: ['*'] };
  const endpoint = await send('/webhook_endpoints', randomUUID(), hook);
  await send('/charges', randomUUID(), { amount: 100, currency: 'usd' });
  const mug = { quantity: 5 };
  await fetch(`${url}/inventory/mug`, {
    method: 'PUT',
    headers: {
      authorization: `Bearer ${apiKey}`,
      'content-type': 'application/json',
      'idempotency-key': randomUUID(),
    },
    body: JSON.stringify(mug),
  });
  const items = [{ sku: 'mug', quantity: 1, unit_amount: 900 }];
  await send('/checkouts', randomUUID(), { currency: 'usd', items });
  await send('/customers', randomUUID(), { email: 'ann@shop.test', payment_method: 'pm_card_visa' });
  // Its holder is to authenticate.
  const confirmed = {
    confirm: true,
    payment_method: 'pm_card_authenticationRequired',
    return_url: 'https://shop.test/back',
  };
  const wish = { amount: 4200, currency: 'usd', ...confirmed };
  const { id: intent } = await send('/payment_intents', randomUUID(), wish);
  await send('/setup_intents', randomUUID(), confirmed);

  for (const colorScheme of ['light', 'dark']) {
    for (const width of [1280, 360]) {
      const page = await open({ colorScheme, viewport: { width, height: 900 } });
      last = page;
      await page.goto(`${url}/console/sign-in`);
      const name = (what) => `${SCREENSHOTS}/console-${what}-${width}-${colorScheme}.png`;
      await page.screenshot({ path: name('sign-in') });
      await check(page, `sign-in at ${width}, ${colorScheme}`);
      const story = await play(page);
      await page.screenshot({ path: name('race') });
      await check(page, `race at ${width}, ${colorScheme}`);
      await checkKeyboard(page);
      if (width === 1280) await checkLive(page);
      const pages = {
        requests: '/console',
        story: new URL(story).pathname,
        playground: '/console/playground',
        charges: '/console/charges',
        charge: `/console/charges/${charge}`,
        'payment-intents': '/console/payment_intents',
        'payment-intent': `/console/payment_intents/${intent}`,
        customers: '/console/customers',
        'setup-intents': '/console/setup_intents',
        orders: '/console/orders',
        refunds: '/console/refunds',
        checkouts: '/console/checkouts',
        webhooks: '/console/deliveries',
        'in-flight': '/console/in-flight',
        missing: '/console/charges/unknown',
      };
      for (const [what, path] of Object.entries(pages)) {
        await page.goto(url + path);
        await page.locator('h1').waitFor();
        await page.screenshot({ path: name(what) });
        await check(page, `${what} at ${width}, ${colorScheme}`);
        assert.ok(!(await page.content()).includes(endpoint.secret), `${what} shows a secret`);
      }
      await page.getByRole('link', { name: 'Back to the console' }).click();
      await page.getByRole('button', { name: 'Sign out' }).click();
      await page.getByRole('heading', { name: 'Sign in' }).waitFor();
      await page.context().close();
    }
  }

  assert.deepEqual(elsewhere, [], 'requests to other hosts');
  assert.deepEqual(errors, [], 'errors on a page');
  console.log('browser-test: the console charged once, and axe-core found nothing');
} catch (error) {
  await last?.screenshot({ path: `${SCREENSHOTS}/console-failure.png` }).catch(() => {});
  throw error;
} finally {
  console.log(`browser-test: screenshots of the console in ${SCREENSHOTS}`);
  await browser.close();
}
