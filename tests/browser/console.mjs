// The console in a real browser: what a person does first, with a script and without, and then every page, looked at as
// look.mjs does.
//
//   CHARGE_ONCE_URL=… DEV_API_KEY=… CHROMIUM=… SCREENSHOTS=… node console.mjs

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { launch } from './launch.mjs';
import { DESK, PHONE, assertFits, look } from './look.mjs';

const { CHARGE_ONCE_URL: url, DEV_API_KEY: apiKey, CHROMIUM, SCREENSHOTS } = process.env;

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
    // Pages are asked for that are not there, or not yet, and forms are sent that are wrong.
    const isExpected = /\/(unknown|playground|slow-[^/]*)$|status=9xx/.test(message.location().url);
    if (message.type() === 'error' && !isExpected) errors.push(message.text());
  });
  page.on('request', (request) => {
    if (new URL(request.url()).origin !== url) elsewhere.push(request.url());
  });
  return page;
}

// A request of a client of the API, which the console shows.
async function send(path, key, body, { method = 'POST', workflow } = {}) {
  const reply = await fetch(url + path, {
    method,
    headers: {
      authorization: `Bearer ${apiKey}`,
      'content-type': 'application/json',
      'idempotency-key': key,
      ...(workflow && { 'idempotency-workflow': workflow }),
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
  await page.getByRole('heading', { name: 'Overview', level: 1 }).waitFor();
}

async function press(page, name, says) {
  await page.getByRole('button', { name }).click();
  await page.locator('.says', { hasText: says }).waitFor();
}

// From the first page to a race, as a stranger would, without a document.
async function play(page) {
  await page.goto(url);
  await page.getByRole('link', { name: 'Console', exact: true }).first().click();
  await signIn(page);
  await page.getByRole('link', { name: 'Playground', exact: true }).click();
  await press(page, 'Send a payment', 'Executed: 1 charge.');
  await paste(page, '201');
  await press(page, 'Retry it with the same key', 'the stored reply came back');
  await press(page, 'Change the amount, same key', 'the key belongs to another request');
  await paste(page, '422');
  await page.getByRole('link', { name: 'The story of this key' }).click();
  await page.locator('.says', { hasText: 'Executed once. 2 retries' }).waitFor();
  await page.getByRole('link', { name: 'Playground', exact: true }).click();
  await press(page, 'Fail once, and retry', 'The first reply was lost.');
  // A replay is not lost.
  await paste(page, '201', '201');
  await press(page, 'Race 20 duplicates', '1 charge, 20 replies, all the same bytes');
  assert.equal(await page.locator('.race .winner').count(), 1);
  assert.equal(await page.locator('.race tbody tr').count(), 20);
  await paste(page, ...Array(20).fill('201'));
}

// A payment intent asks its holder on a page of its own, which leads back to the story.
async function playWithHolder(page) {
  await page.getByRole('link', { name: 'Playground', exact: true }).click();
  await page.getByLabel('Pay with').selectOption('intent');
  await page.getByLabel('Test card').selectOption('tok_threeDSecure2Required');
  await press(page, 'Send a payment', 'Executed: 1 payment intent.');
  await look(page, 'console-holder', SCREENSHOTS);
  const opened = page.waitForEvent('popup');
  await page.getByRole('link', { name: "open the holder's page" }).click();
  const holder = await opened;
  await holder.getByRole('button', { name: 'Complete' }).click();
  await holder.locator('tr', { hasText: 'as it is now' }).getByText('succeeded').waitFor();
  await holder.getByRole('link', { name: /^pi_/ }).first().click();
  await holder.getByText('payment_intent.succeeded').first().waitFor();
  await holder.close();
}

// Runs what the page says does the same, as a person who pastes it. Each request of it reached the server.
async function paste(page, ...statuses) {
  const commands = await page.getByLabel('The same with curl').textContent();
  const env = { ...process.env, CHARGE_ONCE_API_KEY: apiKey };
  const printed = execFileSync('sh', ['-c', commands], { env, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
  assert.deepEqual([...printed.matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, status]) => status), statuses, printed);
}

// A story that runs tells so, and how it ended as soon as it has.
async function checkRunningStory(page) {
  const key = `slow-${randomUUID()}`;
  const sent = send('/charges', key, { amount: 1200, currency: 'eur', source: 'tok_slow' });
  const story = `${url}/console/keys/${key}`;
  // The key may be on its way still.
  while ((await page.goto(story)).status() === 404);
  await page.locator('.says', { hasText: 'In flight: there is no outcome yet.' }).waitFor();
  await look(page, 'console-story-running', SCREENSHOTS);
  await page.locator('.says', { hasText: 'Executed once.' }).waitFor();
  await page.locator('.picture .bar').first().waitFor();
  await page.getByLabel('Update every two seconds').waitFor({ state: 'detached' });
  await sent;
}

// Without any script, on a phone, times are those of UTC, and nothing is wider than the screen.
async function playPlain() {
  const page = await open({ javaScriptEnabled: false, viewport: PHONE });
  await play(page);
  await assertFits(page, 'the race without a script');
  await page.getByRole('link', { name: 'The story of this key' }).click();
  await page.getByText('Time (UTC)').first().waitFor();
  await page.context().close();
}

// What a button did is seen where the button was pressed. The box for UTC and the search share a line.
async function checkPhone() {
  const page = await open({ viewport: PHONE, timezoneId: 'Asia/Kolkata' });
  await signIn(page);
  const bar = await page.locator('header').boundingBox();
  assert.ok(bar.height < 130, `the bar is ${bar.height} pixels high`);
  await page.getByRole('link', { name: 'Playground', exact: true }).click();
  await press(page, 'Send a payment', 'Executed: 1 charge.');
  const { y, height } = await page.locator('.says').boundingBox();
  assert.ok(y + height <= PHONE.height, `what happened ends at ${y + height}`);
  await page.context().close();
}

// The page does not show its session's API key, or the secret of an endpoint.
async function assertKeepsSecrets(page, what, secrets) {
  const content = await page.content();
  for (const secret of secrets) assert.ok(!content.includes(secret), `${what} shows a secret`);
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
  // The bar takes two lines, and each page's link can be seen.
  const bar = await page.locator('header').boundingBox();
  assert.ok(bar.height < 96, `the bar is ${bar.height} pixels high`);
  const nav = page.getByRole('navigation', { name: 'Console' });
  assert.equal(await nav.evaluate((nav) => nav.scrollWidth > nav.clientWidth), false);
}

// A slash leads to the search, and is text there. A name leads to what it names.
async function checkSearch(page, key) {
  await page.goto(`${url}/console`);
  await page.keyboard.press('/');
  const field = page.getByLabel('Search', { exact: true });
  assert.ok(await field.evaluate((field) => field === document.activeElement));
  await page.keyboard.type('no/key');
  assert.equal(await field.inputValue(), 'no/key');
  await field.press('Enter');
  await page.locator('.says', { hasText: 'nothing that is called no/key' }).waitFor();
  await field.fill(key);
  await field.press('Enter');
  await page.getByRole('heading', { name: 'The story of' }).waitFor();
  assert.equal(new URL(page.url()).pathname, `/console/keys/${key}`);
}

// New requests appear by themselves, in the time of the person, until the person stops that.
async function checkLive(page) {
  const key = `live-${randomUUID()}`;
  await page.goto(`${url}/console/requests?key=live-`);
  await send('/charges', key, { amount: 1200, currency: 'eur' });
  const row = page.locator('tr', { has: page.getByTitle(key) });
  await row.locator('time[title]').waitFor();
  await page.getByLabel('Update every two seconds').uncheck();
}

// What a person has opened stays open when the figures are replaced, and the separators are theirs.
async function checkOverview() {
  const page = await open({ viewport: DESK, locale: 'de-DE' });
  await signIn(page);
  await page.goto(`${url}/console`);
  const numbers = page.locator('#numbers');
  assert.equal(await numbers.evaluate((details) => details.open), false);
  await page.getByText('The numbers').click();
  // While it has the focus, nothing is replaced.
  await page.getByRole('heading', { name: 'Overview' }).click();
  const former = await numbers.elementHandle();
  await page.waitForFunction((details) => !details.isConnected, former);
  assert.equal(await numbers.evaluate((details) => details.open), true);
  await page.getByText(/p50 (under|over) [0-9]+(,[0-9])? m?s/).waitFor();
  await page.goto(`${url}/console/charges`);
  await page.getByText('$1.234,50').first().waitFor();
  await page.context().close();
}

// The whole line of a list leads where its id does, its other links lead elsewhere, and times are UTC's on demand.
async function checkLists(charge, customer) {
  const permissions = ['clipboard-read', 'clipboard-write'];
  const page = await open({ viewport: DESK, timezoneId: 'Asia/Kolkata', permissions });
  await signIn(page);
  await page.goto(`${url}/console/charges`);
  await page.getByLabel('UTC', { exact: true }).check();
  await page.locator('.zone', { hasText: '(UTC)' }).first().waitFor();
  const line = page.locator('.lines tr', { has: page.getByRole('link', { name: charge }) });
  const time = line.locator('time');
  const [utc, text] = [await time.getAttribute('datetime'), await time.textContent()];
  assert.ok(text.endsWith(utc.slice(11, 19)), `${text} is not ${utc}`);
  await page.getByLabel('UTC', { exact: true }).uncheck();
  await line.getByRole('link', { name: customer }).click();
  await page.waitForURL(`**/console/customers/${customer}`);
  await page.goBack();
  const { x, y, height } = await line.getByText('Two mugs').boundingBox();
  await page.mouse.click(x + 4, y + height / 2);
  await page.waitForURL(`**/console/charges/${charge}`);
  await page.getByRole('button', { name: 'Copy' }).first().click();
  await page.getByRole('button', { name: 'Copied' }).waitFor();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), charge);
  await page.context().close();
}

// A wrong amount stays in its field, which is named.
async function checkForm(page) {
  await page.goto(`${url}/console/playground`);
  await page.getByLabel('Amount in minor units').fill('abc');
  await page.getByRole('button', { name: 'Send a payment' }).click();
  await page.getByRole('alert').waitFor();
  assert.equal(await page.getByLabel('Amount in minor units').inputValue(), 'abc');
  await look(page, 'console-form', SCREENSHOTS);
  await page.goto(`${url}/console/requests?status=9xx&key=order`);
  await page.getByRole('alert').waitFor();
  assert.equal(await page.getByLabel('Key').inputValue(), 'order');
  await look(page, 'console-filter', SCREENSHOTS);
}

// The double refund is the first that the report tells, and a plan is made and deleted by its form.
async function checkReport(page) {
  await page.goto(`${url}/console/report`);
  await page.getByText('One operation was done twice, under two keys.').waitFor();
  await page.getByText('refund-of-tuesday').first().waitFor();
  await look(page, 'console-report', SCREENSHOTS);
}

// The arrow keys lead to the second charge on the left, and each step has an address. A stranger needs no API key.
async function checkProtocol() {
  const page = await open({ viewport: DESK });
  await page.goto(url);
  await page.getByRole('link', { name: 'Protocol', exact: true }).click();
  await page.getByRole('link', { name: 'A lease in a cache' }).first().click();
  const sides = page.locator('.sides section');
  let step = 0;
  while ((await page.locator('a[rel=next]').count()) > 0) {
    step += 1;
    await page.keyboard.press('ArrowRight');
    await page.waitForURL(`**step=${step}#step`);
  }
  await sides.first().getByText('2 charges: the customer paid twice').waitFor();
  await sides.last().getByText('1 charge: the customer paid once').waitFor();
  await page.keyboard.press('ArrowLeft');
  await page.waitForURL(`**step=${step - 1}#step`);
  assert.equal(await page.locator('[aria-current=step]').textContent(), String(step - 1));
  await page.context().close();
}

// Some of everything, and the paths of their pages.
async function fill() {
  const { id: charge } = await send('/charges', randomUUID(), { amount: 14250, currency: 'usd' });
  await send('/refunds', randomUUID(), { charge, amount: 1200 });
  // A shop that loses the reply to a refund, and orders it again with another key.
  await send('/test/faults', randomUUID(), { route: 'POST /refunds', fault: 'reply_lost' });
  const again = { charge, amount: 700 };
  await assert.rejects(send('/refunds', 'refund-of-monday', again));
  await send('/refunds', 'refund-of-tuesday', again);
  const order = { currency: 'usd', items: [{ quantity: 2, unit_amount: 900, sku: 'mug' }] };
  const { id: ordered } = await send('/orders', randomUUID(), order, { workflow: 'order-7' });
  await send('/charges', randomUUID(), { amount: 4200, currency: 'usd', source: 'tok_chargeDeclined' });
  // It can't be reached, so its deliveries wait.
  const hook = { url: 'https://receiver.invalid/hook', enabled_events: ['*'] };
  const endpoint = await send('/webhook_endpoints', randomUUID(), hook);
  const told = randomUUID();
  await send('/charges', told, { amount: 100, currency: 'usd' });
  await send('/inventory/mug', randomUUID(), { quantity: 1 }, { method: 'PUT' });
  const items = [{ sku: 'mug', quantity: 1, unit_amount: 900 }];
  const sold = randomUUID();
  await send('/checkouts', randomUUID(), { currency: 'usd', items });
  // There is none left, so what was charged is given back.
  await send('/checkouts', sold, { currency: 'usd', items }, { workflow: 'order-7' });
  const ann = { email: 'ann@shop.test', payment_method: 'pm_card_visa' };
  const { id: customer } = await send('/customers', randomUUID(), ann);
  const mugs = { amount: 123_450, currency: 'usd', customer, description: 'Two mugs' };
  const { id: listed } = await send('/charges', randomUUID(), mugs);
  // Its holder is to authenticate.
  const confirmed = {
    confirm: true,
    payment_method: 'pm_card_authenticationRequired',
    return_url: 'https://shop.test/back',
  };
  const wish = { amount: 4200, currency: 'usd', ...confirmed };
  const { id: intent } = await send('/payment_intents', randomUUID(), wish);
  await send('/setup_intents', randomUUID(), confirmed);
  const list = async (path) => {
    const reply = await fetch(url + path, { headers: { authorization: `Bearer ${apiKey}` } });
    return (await reply.json()).data;
  };
  const [canceled] = await list('/checkouts?limit=1');
  const [event] = await list('/events?limit=1');
  const pages = {
    overview: '/console',
    'overview-day': '/console?span=day',
    requests: '/console/requests',
    'requests-none': '/console/requests?status=402&path=/orders',
    search: '/console/search?q=unknown',
    'story-of-events': `/console/keys/${told}`,
    'story-of-checkout': `/console/keys/${sold}`,
    playground: '/console/playground',
    protocol: '/console/protocol?scenario=provider-timeout.provider-key&step=7',
    charges: '/console/charges',
    charge: `/console/charges/${charge}`,
    customers: '/console/customers',
    orders: '/console/orders',
    'payment-intents': '/console/payment_intents',
    'payment-intent': `/console/payment_intents/${intent}`,
    customer: `/console/customers/${customer}`,
    'setup-intents': '/console/setup_intents',
    order: `/console/orders/${ordered}`,
    refunds: '/console/refunds',
    checkouts: '/console/checkouts',
    checkout: `/console/checkouts/${canceled.id}`,
    inventory: '/console/inventory',
    level: '/console/inventory/mug',
    events: '/console/events',
    event: `/console/events/${event.id}`,
    webhooks: '/console/deliveries',
    endpoint: `/console/webhook_endpoints/${endpoint.id}`,
    'new-endpoint': '/console/webhook_endpoints/new',
    workflows: '/console/workflows?name=order-7',
    'in-flight': '/console/in-flight',
    missing: '/console/charges/unknown',
  };
  return { pages, secrets: [apiKey, endpoint.secret], listed, customer };
}

let page;
try {
  await playPlain();
  page = await open({ colorScheme: 'light', viewport: DESK });
  for (const [what, path] of Object.entries({ home: '/', errors: '/errors', 'sign-in': '/console/sign-in' })) {
    await page.goto(url + path);
    await look(page, what, SCREENSHOTS);
  }
  await play(page);
  await look(page, 'console-race', SCREENSHOTS);
  await page.getByRole('link', { name: 'The story of this key' }).click();
  await look(page, 'console-race-story', SCREENSHOTS);
  await page.getByRole('link', { name: 'Playground', exact: true }).click();
  await press(page, 'Fail once, and retry', 'The first reply was lost.');
  await press(page, 'Retry it with the same key', 'the stored reply came back');
  await press(page, 'Change the amount, same key', 'the key belongs to another request');
  await page.getByRole('link', { name: 'The story of this key' }).click();
  await page.getByText('and its reply was').waitFor();
  await look(page, 'console-story', SCREENSHOTS);
  await playWithHolder(page);
  await checkPhone();
  await checkKeyboard(page);
  await checkLive(page);
  await checkRunningStory(page);
  await checkForm(page);
  await checkProtocol();
  const { pages, secrets, listed, customer } = await fill();
  await checkLists(listed, customer);
  await checkOverview();
  for (const [what, path] of Object.entries(pages)) {
    await page.goto(url + path);
    await look(page, `console-${what}`, SCREENSHOTS);
    await assertKeepsSecrets(page, what, secrets);
  }
  await checkReport(page);
  await assertKeepsSecrets(page, 'report', secrets);
  await checkSearch(page, 'refund-of-tuesday');
  await page.goto(`${url}/console/charges/unknown`);
  await page.getByRole('link', { name: 'Back to the console' }).click();
  await page.getByRole('button', { name: 'Sign out' }).click();
  await page.getByRole('heading', { name: 'Sign in' }).waitFor();

  assert.deepEqual(elsewhere, [], 'requests to other hosts');
  assert.deepEqual(errors, [], 'errors on a page');
  console.log('browser-test: the console charged once, and axe-core found nothing');
} catch (error) {
  await page?.screenshot({ path: `${SCREENSHOTS}/console-failure.png` }).catch(() => {});
  throw error;
} finally {
  console.log(`browser-test: screenshots of the console in ${SCREENSHOTS}`);
  await browser.close();
}
