// Vendure's plugin for Stripe, unmodified: its service, its handler of payments and its controller of
// webhooks. What they ask of the rest of Vendure is answered here.

'use strict';

require('reflect-metadata');

const assert = require('node:assert/strict');

const { Order } = require('@vendure/core');
const { StripeController } = require('@vendure/payments-plugin/package/stripe/stripe.controller.js');
const { stripePaymentMethodHandler } = require('@vendure/payments-plugin/package/stripe/stripe.handler.js');
const { StripeService } = require('@vendure/payments-plugin/package/stripe/stripe.service.js');
const Stripe = require('stripe');

const { account, authenticate, step, walk } = require('../support.cjs');

const RETURN_URL = 'https://shop.example/checkout';

const CUSTOMER = { emailAddress: 'ann@example.com', firstName: 'Ann', lastName: 'Bo' };

/** Vendure computes the total from lines, which no order has here. */
class PlacedOrder extends Order {
  get totalWithTax() {
    return 2150;
  }
}

const ORDERS = ['ORD1', 'ORD2'].map((code, index) => {
  const state = 'ArrangingPayment';
  return new PlacedOrder({ id: index + 1, code, currencyCode: 'USD', state });
});

const CONTEXT = {
  channel: { token: 'shop' },
  languageCode: 'en',
  activeUserId: 1,
  apiType: 'admin',
};

/** The plugin's classes, with a Vendure around them that has two orders. */
function plugin(apiKey, webhookSecret) {
  const args = [{ name: 'apiKey', value: apiKey }, { name: 'webhookSecret', value: webhookSecret }];
  const paymentMethods = {
    getEligiblePaymentMethods: async () => [{ code: 'stripe' }],
    findAll: async () => ({ items: [{ code: 'stripe', handler: { code: 'stripe', args } }] }),
  };
  const repository = {
    // Read anew each time, before Vendure knows the customer's id at Stripe.
    findOne: async () => ({ customer: { ...CUSTOMER, customFields: {} } }),
    save: async () => {},
  };
  const connection = {
    getRepository: () => repository,
    withTransaction: (context, work) => work(context),
  };
  const options = { storeCustomersInStripe: true };
  const service = new StripeService(options, connection, paymentMethods, {});
  stripePaymentMethodHandler.init({ get: () => service });

  const payments = [];
  const orders = {
    findOneByCode: async (_, code) => ORDERS.find((order) => order.code === code),
    addPaymentToOrder: async (_, orderId, payment) => {
      payments.push({ orderId: Number(orderId), ...payment });
      return ORDERS.find((order) => order.id === Number(orderId));
    },
    transitionToState: () => assert.fail('the order waits for its payment already'),
  };
  const contexts = { create: async () => CONTEXT };
  const controller = new StripeController(
    options, paymentMethods, orders, service, contexts, connection, {},
  );
  const pay = (...given) => stripePaymentMethodHandler.createPayment(...given);
  const refund = (amount, transactionId) =>
    stripePaymentMethodHandler.createRefund(CONTEXT, {}, amount, ORDERS[0], { transactionId }, args);
  return { service, controller, payments, pay, refund };
}

/** Gives a delivery to the controller, as Nest would. */
async function answer(controller, { body, headers }) {
  const response = {
    headersSent: false,
    status(status) {
      this.statusCode = status;
      return this;
    },
    send() {
      this.headersSent = true;
    },
  };
  const request = { body, rawBody: body };
  await controller.webhook(headers['stripe-signature'], request, response);
  return response.statusCode;
}

walk('vendure', async () => {
  const types = ['payment_intent.succeeded', 'payment_intent.payment_failed'];
  const { apiKey, webhookSecret, delivery } = await account(...types);
  const { service, controller, payments, pay, refund } = plugin(apiKey, webhookSecret);
  // The storefront and the shop's staff.
  const stripe = new Stripe(apiKey);
  const intentOf = async (secret) => stripe.paymentIntents.retrieve(secret.split('_secret_')[0]);
  const confirm = ({ id }, payment_method) =>
    stripe.paymentIntents.confirm(id, { payment_method, return_url: RETURN_URL });

  const [intent, secret] = await step('a customer comes to the checkout', async () => {
    const made = await service.createPaymentIntent(CONTEXT, ORDERS[0]);
    const found = await intentOf(made);
    assert.deepEqual([found.amount, found.currency, found.client_secret], [2150, 'usd', made]);
    assert.deepEqual([found.status, found.capture_method], ['requires_payment_method', 'automatic_async']);
    assert.equal(found.automatic_payment_methods.enabled, true);
    const metadata = { channelToken: 'shop', orderId: '1', orderCode: 'ORD1', languageCode: 'en' };
    assert.deepEqual(found.metadata, metadata);
    const customer = await stripe.customers.retrieve(found.customer);
    assert.deepEqual([customer.email, customer.name], ['ann@example.com', 'Ann Bo']);
    return [found, made];
  });

  await step('the page is loaded again: the customer is found, and the intent is the same', async () => {
    assert.equal(await service.createPaymentIntent(CONTEXT, ORDERS[0]), secret);
    assert.equal((await stripe.customers.list({ email: CUSTOMER.emailAddress })).data.length, 1);
    assert.equal((await stripe.paymentIntents.list()).data.length, 1);
  });

  await step('four tabs at once get one intent', async () => {
    const tabs = [1, 2, 3, 4].map(() => service.createPaymentIntent(CONTEXT, ORDERS[1]));
    assert.equal(new Set(await Promise.all(tabs)).size, 1);
    assert.equal((await stripe.paymentIntents.list()).data.length, 2);
  });

  await step('the storefront confirms', async () => {
    const paid = await confirm(intent, 'pm_card_visa');
    assert.deepEqual([paid.status, paid.amount_received], ['succeeded', 2150]);
  });

  await step('payment_intent.succeeded is delivered, and Vendure settles its order', async () => {
    const told = await delivery('payment_intent.succeeded', intent.id);
    assert.equal(await answer(controller, told), 200);
    assert.equal(payments.length, 1);
    const [{ orderId, method, metadata }] = payments;
    assert.deepEqual([orderId, method], [1, 'stripe']);
    const expected = { paymentIntentAmountReceived: 2150, paymentIntentId: intent.id };
    assert.deepEqual(metadata, expected);
    const { state, amount, transactionId } = await pay(CONTEXT, ORDERS[0], 0, [], metadata);
    assert.deepEqual([state, amount, transactionId], ['Settled', 2150, intent.id]);
  });

  await step('it is settled once if the delivery was tampered with', async () => {
    const told = await delivery('payment_intent.succeeded', intent.id);
    const tampered = { ...told, body: Buffer.from(`${told.body} `) };
    assert.equal(await answer(controller, tampered), 400);
    assert.equal(payments.length, 1);
  });

  await step('the order is refunded in two parts', async () => {
    for (const amount of [500, 1650]) assert.equal((await refund(amount, intent.id)).state, 'Settled');
    const { data } = await stripe.refunds.list({ payment_intent: intent.id });
    assert.deepEqual(data.map(({ amount }) => amount), [1650, 500]);
  });

  await step('a refund beyond that fails, and says so', async () => {
    const { state, metadata } = await refund(1, intent.id);
    assert.deepEqual([state, metadata.type], ['Failed', 'StripeInvalidRequestError']);
    assert.match(metadata.message, /refunded/);
  });

  const [second] = (await stripe.paymentIntents.list()).data;
  await step('a card declines, Vendure is told, and adds no payment', async () => {
    await assert.rejects(confirm(second, 'pm_card_chargeDeclinedInsufficientFunds'), {
      type: 'StripeCardError',
      decline_code: 'insufficient_funds',
    });
    const told = await delivery('payment_intent.payment_failed', second.id);
    assert.ok(told.event.data.object.last_payment_error.message);
    assert.equal(await answer(controller, told), 200);
    assert.equal(payments.length, 1);
  });

  await step('another card asks its bank, the customer agrees, and Vendure settles', async () => {
    const asked = await confirm(second, 'pm_card_threeDSecure2Required');
    assert.equal(asked.status, 'requires_action');
    assert.equal((await authenticate(asked, 'complete')).searchParams.get('payment_intent'), second.id);
    const told = await delivery('payment_intent.succeeded', second.id);
    assert.equal(await answer(controller, told), 200);
    assert.deepEqual(payments.map(({ orderId }) => orderId), [1, 2]);
  });
});
