// What a person does first, in a real browser: open Swagger UI, authorize, charge, and charge again.
//
//   CHARGE_ONCE_URL=… DEV_API_KEY=… CHROMIUM=… SCREENSHOT=… node swagger-ui.mjs

import assert from 'node:assert/strict';
import { launch } from './launch.mjs';
import { PHONE, assertFits } from './look.mjs';

const FORM = 'application/x-www-form-urlencoded';

const { CHARGE_ONCE_URL: url, DEV_API_KEY: apiKey, CHROMIUM, SCREENSHOT } = process.env;

const browser = await launch(CHROMIUM);
const TALL = { width: 1280, height: 1400 };
const page = await browser.newPage({ viewport: TALL });
page.setDefaultTimeout(90_000);

const errors = [];
page.on('pageerror', (error) => errors.push(error.message));

// An inlined image is not a request.
const elsewhere = [];
page.on('request', (request) => {
  const isInlined = request.url().startsWith('data:');
  if (!isInlined && new URL(request.url()).origin !== url) elsewhere.push(request.url());
});

// What the browser keeps for this origin beyond the page, in one of its stores or in cookies.
async function kept(store) {
  const stored = (store) => JSON.stringify({ ...globalThis[store] });
  return (await page.evaluate(stored, store)) + JSON.stringify(await page.context().cookies());
}

// Fails on a button that lies on the text that it copies, or can't be pressed.
async function assertCopies(block, what) {
  const covering = (block) => {
    const box = (element) => element.getBoundingClientRect();
    return [...block.querySelectorAll('.copy-to-clipboard, .download-contents')].filter((button) => {
      const text = button.parentElement.querySelector('pre');
      const { width, height, bottom } = box(button);
      return width < 24 || height < 24 || (text && bottom > box(text).top);
    }).length;
  };
  assert.equal(await block.evaluate(covering), 0, `buttons on text: ${what}`);
}

// Opens a tag, which shows its operations.
async function open(tag) {
  await page.locator(`#operations-tag-${tag}`).click();
}

// Opens an operation and prepares it: everything that Swagger UI fills in stays as it is.
async function tryOut(operation) {
  const block = page.locator(`#operations-${operation}`);
  await block.locator('.opblock-summary-control').click();
  await block.locator('.try-out__btn').click();
  return block;
}

// Where the reply of an operation links to: the story of its key.
async function story(block) {
  const links = block.locator('a.key-story');
  assert.equal(await links.count(), 1);
  return links.getAttribute('href');
}

// Clicks Execute; returns what was created, once it is on the page as well.
async function execute(block, path) {
  const [response] = await Promise.all([
    page.waitForResponse((response) => new URL(response.url()).pathname === path),
    block.locator('.execute').click(),
  ]);
  const body = await response.json();
  assert.equal(response.status(), 201, JSON.stringify(body));
  const shown = block.locator('.live-responses-table');
  await shown.locator('.response-col_status', { hasText: '201' }).waitFor();
  await shown.getByText(body.id).first().waitFor();
  return { headers: response.headers(), body };
}

try {
  await page.goto(`${url}/swagger-ui/`);

  // The operations are behind their tags, so the page fits on a screen.
  await page.locator('#operations-tag-Charges').waitFor();
  assert.equal(await page.locator('.opblock').count(), 0, 'operations before a tag is opened');
  const height = await page.evaluate(() => document.documentElement.scrollHeight);
  assert.ok(height <= 1600, `the page is ${height} pixels high`);

  // No bar for another document, and on a phone, nothing is wider than the screen.
  assert.equal(await page.locator('.topbar').count(), 0);
  await page.setViewportSize(PHONE);
  await assertFits(page, 'Swagger UI on a phone');
  await page.screenshot({ path: SCREENSHOT.replace('.png', '-phone.png') });
  // A word in code is a chip, which covers no other line.
  const covering = await page.locator('.info p code').evaluateAll((chips) =>
    chips
      .filter((chip) => {
        const line = parseFloat(getComputedStyle(chip.parentElement).lineHeight);
        return [...chip.getClientRects()].some((part) => !(part.height <= line));
      })
      .map((chip) => chip.textContent),
  );
  assert.deepEqual(covering, [], 'chips that cover lines');
  await page.setViewportSize(TALL);

  await page.locator('.auth-wrapper .authorize').click();
  assert.equal(await page.locator('.auth-container').count(), 1, 'more forms than one for the API key');
  await page.locator('.modal-ux').getByText('sk_test_').first().waitFor();
  const bearer = page.locator('.auth-container', { has: page.locator('#auth-bearer-value') });
  await bearer.locator('#auth-bearer-value').fill(apiKey);
  await bearer.locator('button[type=submit]').click();
  await page.locator('.modal-ux').getByText('Authorized', { exact: true }).waitFor();
  await page.locator('.modal-ux .btn-done').first().click();

  await open('Charges');
  const charges = await tryOut('Charges-createCharge');
  const key = charges.locator('tr[data-param-name="Idempotency-Key"] input');
  const firstKey = await key.inputValue();
  const card = charges.locator('.opblock-section-request-body .examples-select-element');
  assert.equal(await card.inputValue(), 'tok_visa');
  const first = await execute(charges, '/charges');
  assert.match(first.body.id, /^ch_/);
  assert.equal(first.body.status, 'succeeded');
  assert.equal(first.headers['idempotent-replayed'], undefined);
  assert.equal(await charges.locator('.replayed').count(), 0);

  // A second click is what a retry looks like from here: the key is still the same.
  await charges.locator('.btn-clear').click();
  const second = await execute(charges, '/charges');
  assert.equal(second.headers['idempotent-replayed'], 'true');
  assert.deepEqual(second.body, first.body);
  assert.equal(await story(charges), `/console/keys/${firstKey}`);
  // Its headers say so below the fold, and a badge above the reply.
  await charges.locator('.replayed').scrollIntoViewIfNeeded();
  await page.screenshot({ path: SCREENSHOT });
  await page.setViewportSize(PHONE);
  await assertCopies(charges, 'a reply on a phone');
  await assertFits(page, 'a reply on a phone');
  await page.setViewportSize(TALL);

  // Another card is another operation: choosing one makes a fresh key, by itself.
  await card.selectOption('tok_mastercard');
  // The link belongs to the reply that is shown, whatever the form says by now.
  const secondKey = await key.inputValue();
  assert.notEqual(secondKey, firstKey);
  assert.equal(await story(charges), `/console/keys/${firstKey}`);
  const mastercard = await execute(charges, '/charges');
  assert.equal(await story(charges), `/console/keys/${secondKey}`);
  assert.notEqual(mastercard.body.id, first.body.id);
  assert.equal(mastercard.body.source.brand, 'mastercard');

  // So is a form, with metadata in brackets as the document says.
  await charges.locator('.opblock-section-request-body select').first().selectOption(FORM);
  const form = await execute(charges, '/charges');
  assert.notEqual(form.body.id, mastercard.body.id);
  assert.equal(form.body.metadata.additionalProp1, 'string');

  // A reply to a request without a key has no story.
  const list = await tryOut('Charges-listCharges');
  const listed = page.waitForResponse((response) => new URL(response.url()).pathname === '/charges');
  await list.locator('.execute').click();
  assert.equal((await listed).status(), 200);
  await list.locator('.live-responses-table').waitFor();
  assert.equal(await list.locator('a.key-story').count(), 0);

  // Every operation has a key of its own filled in: the charge's would be refused here.
  await open('Orders');
  const orders = await tryOut('Orders-createOrder');
  const { body: order } = await execute(orders, '/orders');
  assert.match(order.id, /^or_/);
  // Each operation links to its own story.
  const orderKey = await orders.locator('tr[data-param-name="Idempotency-Key"] input').inputValue();
  assert.equal(await story(orders), `/console/keys/${orderKey}`);
  assert.equal(await story(charges), `/console/keys/${await key.inputValue()}`);

  // From the charge to its story, and from the charge's page back to the operation that retrieves it.
  const visit = await browser.newPage();
  visit.setDefaultTimeout(90_000);
  await visit.goto(`${url}/console/keys/${firstKey}`);
  await visit.getByLabel('API key').fill(apiKey);
  await visit.getByRole('button', { name: 'Sign in' }).click();
  await visit.getByRole('heading', { name: `The story of ${firstKey}` }).waitFor();
  await visit.getByRole('link', { name: first.body.id }).first().click();
  await visit.getByRole('link', { name: 'Retrieve it in Swagger UI' }).click();
  await visit.locator('#operations-Charges-retrieveCharge.is-open').waitFor();
  await visit.close();

  // The API key stays in this tab, and what an earlier Swagger UI has kept of it is removed.
  assert.ok((await kept('sessionStorage')).includes(apiKey), 'the API key is not kept');
  await page.evaluate((key) => localStorage.setItem('authorized', JSON.stringify({ key })), apiKey);

  // A page that is loaded again is still authorized, and has fresh keys: a colleague's charge is never replayed.
  await page.reload();
  await page.locator('.auth-wrapper .authorize.locked').waitFor();
  assert.ok(!(await kept('localStorage')).includes(apiKey), 'the API key outlives the visit');
  await open('Charges');
  await tryOut('Charges-createCharge');
  assert.notEqual(await key.inputValue(), firstKey);

  // Who logs out leaves nothing.
  await page.locator('.auth-wrapper .authorize').click();
  await page.getByRole('button', { name: 'Remove authorization' }).click();
  assert.ok(!(await kept('sessionStorage')).includes(apiKey), 'the API key is kept after a logout');

  assert.deepEqual(elsewhere, [], 'requests to other hosts');
  assert.deepEqual(errors, [], 'errors on the page');
  console.log(`browser-test: charged once, ${first.body.id}, and got it twice`);
} catch (error) {
  // The failure itself is worth more than its picture.
  await page.screenshot({ path: SCREENSHOT }).catch(() => {});
  throw error;
} finally {
  console.log(`browser-test: screenshot in ${SCREENSHOT}`);
  await browser.close();
}
