// The page of a card's holder in a real browser, which sends them back to the shop. It is looked at as look.mjs does.
// The shop is at another origin, and sends its customer on to a third one, so that the page's policy is asked about both.
//
//   CHARGE_ONCE_URL=… DEV_API_KEY=… CHROMIUM=… SCREENSHOTS=… node holder-page.mjs

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { launch } from './launch.mjs';
import { DESK, look } from './look.mjs';

const { CHARGE_ONCE_URL: url, DEV_API_KEY: apiKey, CHROMIUM, SCREENSHOTS } = process.env;

// The last page of the shop, and its page that the holder returns to.
const last = await serve((request, response) => response.end(request.url));
const shop = await serve((request, response) => {
  response.writeHead(302, { location: `${last}${request.url}` }).end();
});

async function serve(handler) {
  const server = createServer(handler).listen(0, '127.0.0.1');
  server.unref();
  await once(server, 'listening');
  return `http://127.0.0.1:${server.address().port}`;
}

// Where the holder of a card is sent.
async function holderPage(returnUrl) {
  const reply = await fetch(`${url}/setup_intents`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${apiKey}`,
      'content-type': 'application/json',
      'idempotency-key': randomUUID(),
    },
    body: JSON.stringify({
      payment_method: 'pm_card_threeDSecure2Required',
      confirm: true,
      ...(returnUrl && { return_url: returnUrl }),
      payment_method_types: ['card'],
    }),
  });
  assert.equal(reply.status, 201);
  return (await reply.json()).next_action.redirect_to_url.url;
}

const browser = await launch(CHROMIUM);
const errors = [];
const answers = [
  ['Complete authentication', 'succeeded'],
  ['Fail authentication', 'failed'],
];

async function visit([button, status]) {
  const context = await browser.newContext({ colorScheme: 'light', viewport: DESK });
  const page = await context.newPage();
  page.setDefaultTimeout(90_000);
  page.on('console', (message) => {
    // The shop has no icon, and the page is asked for once more when it is void.
    const isOwn = message.location().url.startsWith(url);
    if (message.type() === 'error' && isOwn && !message.text().includes('410')) errors.push(`${status}: ${message.text()}`);
  });
  const at = await holderPage(`${shop}/return`);
  await page.goto(at);
  await look(page, `holder-page-${status}`, SCREENSHOTS);
  const high = (await page.getByRole('button', { name: button }).boundingBox()).height;
  assert.ok(high >= 40, `a button of ${high} pixels`);
  await page.getByRole('button', { name: button }).click();
  await page.waitForURL(`${last}/return?**`);
  const told = new URL(page.url()).searchParams;
  assert.equal(told.get('redirect_status'), status);
  assert.match(told.get('setup_intent_client_secret'), /^seti_\w+_secret_\w+$/);
  // Back, and once more: the page is void.
  const again = await page.goto(at);
  assert.equal(again.status(), 410);
  await look(page, `holder-page-${status}-void`, SCREENSHOTS);
  await page.getByRole('link', { name: 'Back to the shop' }).click();
  await page.waitForURL(`${last}/return?**`);
  await context.close();
}

// A shop without an address to return to: the page itself says how it ended.
async function visitAlone() {
  const page = await browser.newPage({ viewport: DESK });
  await page.goto(await holderPage());
  await page.getByRole('button', { name: 'Fail authentication' }).click();
  await page.getByRole('heading', { name: 'The card was not set up' }).waitFor();
  await look(page, 'holder-page-alone-failed', SCREENSHOTS);
  await page.close();
}

try {
  for (const answer of answers) await visit(answer);
  await visitAlone();
  assert.deepEqual(errors, [], 'errors on the page');
  console.log("browser-test: a card's holder came back to the shop, and axe-core found nothing");
} finally {
  await browser.close();
}
