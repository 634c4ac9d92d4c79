// Saleor's app for Stripe, unmodified, through the lives of a few payments. It isn't on npm, so that it is taken from
// a clone. Its use cases are called as its routes call them. What they ask of Saleor and of the app's database is
// answered here.

'use strict';

const assert = require('node:assert/strict');
const { execFileSync } = require('node:child_process');
const { randomUUID } = require('node:crypto');
const path = require('node:path');

const { err, ok } = require('neverthrow');
const Stripe = require('stripe');
const { register } = require('tsx/esm/api');

const { account, authenticate, get, loseReplies, step, walk } = require('../support.cjs');

// Commit 94c03aeb0e365340354238c6bbb5a4cbd61ecdc4.
const TAG = 'saleor-app-payment-stripe@2.6.10';

// The app reads these where it isn't asked for a secret or a row.
const ENVIRONMENT = { NODE_ENV: 'test', AWS_REGION: 'none', DYNAMODB_MAIN_TABLE_NAME: 'none', SECRET_KEY: 'none' };

const MODULES = [
  'app/api/webhooks/saleor/transaction-cancelation-requested/use-case',
  'app/api/webhooks/saleor/transaction-charge-requested/use-case',
  'app/api/webhooks/saleor/transaction-initialize-session/use-case',
  'app/api/webhooks/saleor/transaction-process-session/use-case',
  'app/api/webhooks/saleor/transaction-refund-requested/use-case',
  'app/api/webhooks/stripe/use-case',
  'app/api/webhooks/stripe/webhook-params',
  'lib/app-context',
  'modules/app-config/domain/stripe-config',
  'modules/app-problems/stripe-problem-reporter',
  'modules/saleor/transaction-event-reporter',
  'modules/stripe/stripe-auth-validator',
  'modules/stripe/stripe-client',
  'modules/stripe/stripe-payment-intents-api-factory',
  'modules/stripe/stripe-refunds-api-factory',
  'modules/stripe/stripe-webhook-manager',
  'modules/stripe/stripe-webhook-signature-validator',
  'modules/transactions-recording/repositories/transaction-recorder-repo',
];

const APP_ID = 'app-1';
const SALEOR = 'https://shop.example/graphql/';
const CHECKOUT = { id: 'checkout-1', channel: { id: 'channel-1', slug: 'germany' } };
const RETURN_URL = 'https://shop.example/checkout';

/** The app's modules, as its tag has them. */
async function load() {
  try {
    const clone = path.join(process.env.CHECKOUTS, 'apps');
    const archive = ['-C', clone, 'archive', TAG, 'apps/stripe', 'packages'];
    execFileSync('tar', ['x', '-C', __dirname], { input: execFileSync('git', archive, { maxBuffer: 2 ** 28 }) });
  } catch {
    const clone = `git clone --depth 1 --branch ${TAG} https://github.com/saleor/apps "$CHECKOUTS/apps"`;
    throw new Error(`Saleor's app isn't on npm: name a folder in CHECKOUTS, and run ${clone}`);
  }
  // It says where the app's packages are, and that stand-ins.mjs is for Next.js and Sentry.
  const TSX_TSCONFIG_PATH = path.join(__dirname, 'tsconfig.json');
  Object.assign(process.env, { ...ENVIRONMENT, TSX_TSCONFIG_PATH });
  register();
  return Object.assign({}, ...(await Promise.all(MODULES.map((file) => import(`@/${file}`)))));
}

/** A Saleor, as the app's client for GraphQL meets it: it takes one event of a type about one object at Stripe. */
function emptySaleor() {
  const [told, reports, problems] = [[], [], []];
  const data = ({ input, ...report }) => {
    if (input) {
      problems.push(input.key);
      return { appProblemCreate: { errors: [] } };
    }
    told.push(report);
    const { type, pspReference } = report;
    const alreadyProcessed = reports.some((each) => each.type === type && each.pspReference === pspReference);
    if (!alreadyProcessed) reports.push(report);
    return { transactionEventReport: { alreadyProcessed, transactionEvent: { id: 'event' }, errors: [] } };
  };
  const mutation = (_, variables) => {
    const result = Promise.resolve({ data: data(variables) });
    return Object.assign(result, { toPromise: () => result });
  };
  return { mutation, told, reports, problems };
}

/** The app's database, with one configuration for each channel. */
function emptyDatabase({ TransactionRecorderError }) {
  const recorded = new Map();
  const database = {
    apl: { get: async () => ({ appId: APP_ID, saleorApiUrl: SALEOR, token: 'token' }) },
    appConfigRepo: { getStripeConfig: async () => ok(database.config) },
    transactionRecorder: {
      recordTransaction: async (_, transaction) => {
        recorded.set(transaction.stripePaymentIntentId, transaction);
        return ok(null);
      },
      getTransactionByStripePaymentIntentId: async (_, id) =>
        recorded.has(id) ? ok(recorded.get(id)) : err(new TransactionRecorderError.TransactionMissingError()),
    },
  };
  return database;
}

walk('saleor', async () => {
  const app = await load();
  const { apiKey, origin, delivery } = await account();
  const saleor = emptySaleor();
  const database = emptyDatabase(app);
  const problemReporter = new app.StripeProblemReporter(saleor);
  const webhookManager = new app.StripeWebhookManager();
  // As the routes put them together.
  const parts = {
    ...database,
    problemReporterFactory: () => problemReporter,
    stripePaymentIntentsApiFactory: new app.StripePaymentIntentsApiFactory(),
    stripeRefundsApiFactory: new app.StripeRefundsApiFactory(),
    transactionEventReporterFactory: () => new app.TransactionEventReporter({ graphqlClient: saleor }),
    webhookEventVerifyFactory: (client) => app.StripeWebhookSignatureValidator.createFromClient(client),
    webhookManager,
  };
  const respond = (UseCase, told) =>
    app.appContextContainer.wrapRequest(async () => {
      const result = await new UseCase(parts).execute(told);
      return (result.isOk() ? result.value : result.error).getResponse();
    })();

  /** What Saleor is answered when it tells the app of an event. */
  const tell = async (UseCase, event) => {
    const installed = { appId: APP_ID, saleorApiUrl: SALEOR, saleorSchemaVersion: [3, 22], problemReporter };
    const response = await respond(UseCase, { ...installed, event });
    assert.equal(response.status, 200);
    return response.json();
  };
  const begin = (id, actionType, { amount = 21.5, paymentMethod = 'card' } = {}) =>
    tell(app.TransactionInitializeSessionUseCase, {
      action: { actionType, amount, currency: 'USD' },
      data: { paymentIntent: { paymentMethod } },
      idempotencyKey: `key-of-${id}`,
      sourceObject: { __typename: 'Checkout', ...CHECKOUT },
      transaction: { id },
    });
  const proceed = (pspReference) =>
    tell(app.TransactionProcessSessionUseCase, { sourceObject: CHECKOUT, transaction: { pspReference } });
  const order = (UseCase) => (id, pspReference, amount) =>
    tell(UseCase, { action: { amount, currency: 'USD' }, transaction: { id, pspReference, checkout: CHECKOUT } });
  const charge = order(app.TransactionChargeRequestedUseCase);
  const refund = order(app.TransactionRefundRequestedUseCase);
  const cancel = order(app.TransactionCancelationRequestedUseCase);

  /** What Stripe is answered when it delivers an event. */
  const hear = async ({ url, body, headers }) => {
    const webhookParams = app.WebhookParams.createFromWebhookUrl(origin + url)._unsafeUnwrap();
    const told = { rawBody: `${body}`, signatureHeader: headers['stripe-signature'], webhookParams };
    return (await respond(app.StripeWebhookUseCase, told)).status;
  };

  // The storefront.
  const stripe = new Stripe(apiKey);
  const confirm = (id, payment_method = 'pm_card_visa') =>
    stripe.paymentIntents.confirm(id, { payment_method, return_url: RETURN_URL });
  const authorize = async (id) => {
    const { pspReference } = await begin(id, 'AUTHORIZATION');
    await confirm(pspReference);
    return pspReference;
  };
  const found = (id) => get(`/v1/payment_intents/${id}`, apiKey);
  const refunded = async (id) => {
    const { data } = await get(`/v1/refunds?payment_intent=${id}`, apiKey);
    return data.reverse().map(({ id, amount, status }) => [id, amount, status]);
  };
  const keys = (requests) => [...new Set(requests.map(({ request }) => request.getHeader('idempotency-key')))];

  await step('its staff enter a key, and one that is unknown is refused', async () => {
    const validate = (key) => {
      const client = app.StripeClient.createFromRestrictedKey(key);
      return app.StripeAuthValidator.createFromClient(client).validateStripeAuth();
    };
    assert.ok((await validate(apiKey)).isOk());
    assert.ok((await validate('rk_test_unknown_0001')).isErr());
  });

  const secret = await step('it makes an endpoint for webhooks', async () => {
    const id = randomUUID();
    const entered = { name: 'Germany', restrictedKey: apiKey, publishableKey: 'pk_test_saleor' };
    const installed = { appUrl: origin, saleorApiUrl: SALEOR, appId: APP_ID };
    const made = await webhookManager.createWebhook({ ...entered, configurationId: id }, installed);
    const { id: webhookId, secret: webhookSecret } = made._unsafeUnwrap();
    const { status } = (await webhookManager.getWebhook({ webhookId, restrictedKey: apiKey }))._unsafeUnwrap();
    const { metadata, never_sent } = await get(`/v1/webhook_endpoints/${webhookId}`, apiKey);
    assert.deepEqual([status, metadata.saleorAppConfigurationId], ['enabled', id]);
    assert.deepEqual(never_sent, ['payment_intent.processing', 'charge.refund.updated']);
    // Not by its `create`, which wants a key that begins with rk_test_: that of a test account begins with sk_test_.
    const configuration = { id, webhookId, webhookSecret, ...entered };
    database.config = Object.assign(Object.create(app.StripeConfig.prototype), configuration);
    return webhookSecret;
  });

  const paid = await step('a payment session begins', async () => {
    const { pspReference, result, amount, actions, data } = await begin('trans-1', 'CHARGE');
    assert.deepEqual([result, amount, actions], ['CHARGE_ACTION_REQUIRED', 21.5, ['CANCEL']]);
    const intent = await found(pspReference);
    assert.deepEqual([intent.amount, intent.currency, intent.status], [2150, 'usd', 'requires_payment_method']);
    assert.equal(intent.metadata.saleor_transaction_id, 'trans-1');
    assert.equal(data.paymentIntent.stripeClientSecret, intent.client_secret);
    return pspReference;
  });

  await step('begun again under the same key, it is the same session', async () => {
    assert.equal((await begin('trans-1', 'CHARGE')).pspReference, paid);
  });

  await step('with another amount under the same key, it fails', async () => {
    const { result, message, data } = await begin('trans-1', 'CHARGE', { amount: 3 });
    assert.deepEqual([result, data.paymentIntent.errors[0].code], ['CHARGE_FAILURE', 'StripeApiError']);
    assert.match(message, /Idempotency key error/);
  });

  await step('with a method that the app does not know, it sends no request', async (requests) => {
    const { result, data } = await begin('trans-2', 'CHARGE', { paymentMethod: 'coins' });
    assert.deepEqual([result, data.paymentIntent.errors[0].code], ['CHARGE_FAILURE', 'UnsupportedPaymentMethodError']);
    assert.deepEqual(requests, []);
    assert.deepEqual(saleor.problems.splice(0), ['stripe-invalid-payment-method:germany']);
  });

  await step('a card declines, and the customer has yet to pay', async () => {
    await assert.rejects(confirm(paid, 'pm_card_chargeDeclined'), { code: 'card_declined' });
    const { result, amount } = await proceed(paid);
    assert.deepEqual([result, amount], ['CHARGE_ACTION_REQUIRED', 21.5]);
  });

  await step('another card pays', async () => {
    await confirm(paid);
    const { result, amount, actions, paymentMethodDetails } = await proceed(paid);
    assert.deepEqual([result, amount, actions], ['CHARGE_SUCCESS', 21.5, ['REFUND']]);
    assert.deepEqual([paymentMethodDetails.brand, paymentMethodDetails.lastDigits], ['visa', '4242']);
  });

  const asked = await step('a bank asks the customer, who agrees', async () => {
    const { pspReference } = await begin('trans-3', 'CHARGE');
    const intent = await confirm(pspReference, 'pm_card_threeDSecure2Required');
    const { result, message } = await proceed(pspReference);
    assert.deepEqual([result, message], ['CHARGE_ACTION_REQUIRED', 'Payment intent requires action']);
    await authenticate(intent, 'complete');
    assert.equal((await proceed(pspReference)).result, 'CHARGE_SUCCESS');
    return pspReference;
  });

  const authorized = await step('a payment is authorized', async () => {
    const id = await authorize('trans-4');
    const { result, amount, actions } = await proceed(id);
    assert.deepEqual([result, amount, actions], ['AUTHORIZATION_SUCCESS', 21.5, ['CHARGE', 'CANCEL']]);
    assert.equal((await found(id)).status, 'requires_capture');
    return id;
  });

  await step('the reply to its charge is lost, and ordered again, it fails', async (requests) => {
    const arrive = await loseReplies(apiKey, 'POST /v1/payment_intents/{id}/capture');
    const { result, message } = await charge('trans-4', authorized, 21.5);
    assert.equal(result, 'CHARGE_FAILURE');
    assert.match(message, /network problem/);
    await arrive();
    assert.equal((await charge('trans-4', authorized, 21.5)).result, 'CHARGE_FAILURE');
    assert.equal(keys(requests).length, 2);
    assert.equal((await found(authorized)).amount_received, 2150);
  });

  await step('of an authorized payment, 5.00 are ordered, and all is charged: the amount is not sent', async () => {
    const id = await authorize('trans-5');
    const { result, amount } = await charge('trans-5', id, 5);
    assert.deepEqual([result, amount, (await found(id)).amount_received], ['CHARGE_SUCCESS', 21.5, 2150]);
  });

  const canceled = await step('another is canceled, and not twice', async () => {
    const id = await authorize('trans-6');
    const { result, amount } = await cancel('trans-6', id);
    assert.deepEqual([result, amount, (await found(id)).status], ['CANCEL_SUCCESS', 21.5, 'canceled']);
    assert.equal((await cancel('trans-6', id)).result, 'CANCEL_FAILURE');
    return id;
  });

  await step('the reply to a session is lost, and begun again, it is one: its key is from Saleor', async (requests) => {
    const arrive = await loseReplies(apiKey, 'POST /v1/payment_intents');
    assert.equal((await begin('trans-7', 'CHARGE')).result, 'CHARGE_FAILURE');
    await arrive();
    const { pspReference } = await begin('trans-7', 'CHARGE');
    assert.deepEqual(keys(requests), ['key-of-trans-7']);
    const { data } = await get('/v1/payment_intents?limit=100', apiKey);
    const made = data.filter(({ metadata }) => metadata.saleor_transaction_id === 'trans-7');
    assert.deepEqual(made.map(({ id }) => id), [pspReference]);
  });

  await step('5.00 are refunded, and no more than was paid', async () => {
    const answer = await refund('trans-1', paid, 5);
    assert.deepEqual(await refunded(paid), [[answer.pspReference, 500, 'succeeded']]);
    assert.equal((await refund('trans-1', paid, 20)).result, 'REFUND_FAILURE');
    assert.equal((await refunded(paid)).length, 1);
  });

  await step('with a key that is unknown, a refund fails, and Saleor is told of the problem', async () => {
    const { config } = database;
    database.config = Object.assign(Object.create(config), { restrictedKey: 'rk_test_unknown_0001' });
    const { result, message } = await refund('trans-1', paid, 5);
    assert.equal(result, 'REFUND_FAILURE');
    assert.match(message, /can’t authenticate/);
    assert.deepEqual(saleor.problems.splice(0), [`stripe-auth-failure:${config.id}`]);
    database.config = config;
  });

  // saleor/apps#2446: a refund's key is made by the SDK, for each call.
  const doubled = await step('the reply to a refund is lost, and ordered again, it is made twice', async (requests) => {
    const arrive = await loseReplies(apiKey, 'POST /v1/refunds');
    const { result, actions } = await refund('trans-3', asked, 5);
    assert.deepEqual([result, actions], ['REFUND_FAILURE', ['REFUND']]);
    await arrive();
    const { pspReference } = await refund('trans-3', asked, 5);

    const made = await refunded(asked);
    console.log(`          The app sent ${keys(requests).join(' and ')}, and knows one refund; there are ${made.length}`);
    assert.equal(keys(requests).length, 2);
    assert.deepEqual(made.map(([, ...more]) => more), [[500, 'succeeded'], [500, 'succeeded']]);
    assert.equal(made[1][0], pspReference);
    return made.map(([id]) => id);
  });

  await step('it is also made twice if Saleor sends the event again', async (requests) => {
    const answers = [await refund('trans-4', authorized, 5), await refund('trans-4', authorized, 5)];
    const made = answers.map(({ pspReference }) => [pspReference, 500, 'succeeded']);
    assert.deepEqual(await refunded(authorized), made);
    assert.equal(keys(requests).length, 2);
  });

  await step('the report finds the first of these, because the app was answered in the second', async () => {
    const { findings } = await get('/test/report', apiKey);
    assert.deepEqual(findings.map(({ type, objects }) => [type, objects]), [['double_effect', doubled]]);
    console.log(`          The report: ${findings[0].title}`);
  });

  for (const [type, id, result] of [
    ['payment_intent.payment_failed', paid, 'CHARGE_FAILURE'],
    ['payment_intent.succeeded', paid, 'CHARGE_SUCCESS'],
    ['payment_intent.requires_action', asked, 'CHARGE_ACTION_REQUIRED'],
    ['payment_intent.amount_capturable_updated', authorized, 'AUTHORIZATION_SUCCESS'],
    ['payment_intent.succeeded', authorized, 'CHARGE_SUCCESS'],
    ['payment_intent.canceled', canceled, 'CANCEL_SUCCESS'],
  ]) {
    await step(`${type} is delivered twice, and Saleor takes it once: ${result}`, async () => {
      const webhook = await delivery(type, id);
      const before = saleor.reports.length;
      assert.deepEqual([await hear(webhook), await hear(webhook)], [200, 200]);
      const [report, ...more] = saleor.reports.slice(before);
      assert.deepEqual([report.type, report.amount, report.pspReference, more], [result, 21.5, id, []]);
      assert.deepEqual(saleor.told.slice(-2), [report, report]);
    });
  }

  await step('Saleor hears of both refunds', async () => {
    // Stripe tells of a refund's progress. charge-once doesn't: a refund has succeeded when it is created.
    for (const id of doubled) {
      const { url } = await delivery('payment_intent.succeeded', asked);
      const object = await get(`/v1/refunds/${id}`, apiKey);
      const created = Math.floor(Date.now() / 1000);
      const body = JSON.stringify({ object: 'event', type: 'charge.refund.updated', created, data: { object } });
      const signature = stripe.webhooks.generateTestHeaderString({ payload: body, secret });
      assert.equal(await hear({ url, body, headers: { 'stripe-signature': signature } }), 200);
    }
    const refunds = saleor.reports.slice(-2).map(({ type, amount, pspReference }) => [type, amount, pspReference]);
    assert.deepEqual(refunds, doubled.map((id) => ['REFUND_SUCCESS', 5, id]));
  });

  await step('it refuses what was tampered with, and what is not from Saleor', async () => {
    const webhook = await delivery('payment_intent.succeeded', paid);
    assert.equal(await hear({ ...webhook, body: `${webhook.body} ` }), 400);
    assert.deepEqual(saleor.problems, [`stripe-webhook-secret-mismatch:${database.config.id}`]);
    const { id } = await stripe.paymentIntents.create({ amount: 100, currency: 'usd' });
    await confirm(id);
    const before = saleor.told.length;
    assert.equal(await hear(await delivery('payment_intent.succeeded', id)), 400);
    assert.equal(saleor.told.length, before);
  });
});
