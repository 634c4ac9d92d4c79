// Payload's plugin for shops, unmodified: its adapter for Stripe. What the adapter asks of the rest of Payload is
// answered here. The packages of its pages aren't loaded, and package.json puts a small one in their place.

'use strict';

const assert = require('node:assert/strict');

const Stripe = require('stripe');

const { account, get, step, walk } = require('../support.cjs');

const EMAIL = 'ann@example.com';

const CART = {
  id: 'cart-1',
  subtotal: 2150,
  items: [{ product: { id: 'shoes' }, variant: { id: 'red' }, quantity: 2 }],
};

// As the plugin keeps them.
const ITEMS = [{ product: 'shoes', quantity: 2, variant: 'red' }];

const ADDRESS = { addressLine1: 'Rheinweg 1', city: 'Bonn', country: 'DE', postalCode: '53111' };

/** A Payload without a transaction. */
function emptyPayload() {
  const transactions = [];
  const orders = [];
  const payload = {
    logger: { error: () => {} },
    create: async ({ collection, data }) => {
      assert.equal(collection, 'transactions');
      transactions.push({ id: transactions.length + 1, ...data });
      return transactions.at(-1);
    },
    find: async ({ collection, where }) => {
      assert.equal(collection, 'transactions');
      const { equals } = where['stripe.paymentIntentID'];
      const docs = transactions.filter(({ stripe }) => stripe.paymentIntentID === equals);
      return { docs, totalDocs: docs.length };
    },
  };
  const finalizeOrder = async ({ orderData, transactionID }) => {
    orders.push({ id: `order-${orders.length + 1}`, ...orderData, transactionID });
    return orders.at(-1);
  };
  return { payload, transactions, orders, finalizeOrder };
}

walk('payload', async () => {
  const { stripeAdapter } = await import('@payloadcms/plugin-ecommerce/payments/stripe');
  const { apiKey, webhookSecret, delivery } = await account('*');
  const heard = [];
  const adapter = stripeAdapter({
    secretKey: apiKey,
    publishableKey: 'pk_test_payload',
    webhookSecret,
    webhooks: { 'payment_intent.succeeded': ({ event }) => heard.push(event.data.object.id) },
  });
  const { payload, transactions, orders, finalizeOrder } = emptyPayload();
  const transactionsSlug = 'transactions';
  // The storefront.
  const stripe = new Stripe(apiKey);
  const initiate = () => {
    const addresses = { billingAddress: ADDRESS, shippingAddress: ADDRESS };
    const data = { customerEmail: EMAIL, currency: 'USD', cart: CART, ...addresses };
    return adapter.initiatePayment({ data, req: { payload }, transactionsSlug });
  };
  const confirmOrder = (paymentIntentID) => {
    const data = { cartID: CART.id, customerEmail: EMAIL, paymentIntentID };
    return adapter.confirmOrder({ data, finalizeOrder, req: { payload }, transactionsSlug });
  };

  const intent = await step('a customer comes to the checkout', async () => {
    const { clientSecret, paymentIntentID } = await initiate();
    const found = await get(`/v1/payment_intents/${paymentIntentID}`, apiKey);
    assert.deepEqual([found.amount, found.currency, found.status], [2150, 'usd', 'requires_payment_method']);
    assert.equal(found.client_secret, clientSecret);
    assert.equal(found.automatic_payment_methods.enabled, true);
    assert.equal(found.metadata.cartID, CART.id);
    assert.deepEqual(JSON.parse(found.metadata.cartItemsSnapshot), ITEMS);
    assert.deepEqual(JSON.parse(found.metadata.shippingAddress), ADDRESS);
    const [transaction] = transactions;
    assert.deepEqual([transaction.status, transaction.amount, transaction.currency], ['pending', 2150, 'USD']);
    assert.deepEqual(transaction.stripe, { customerID: found.customer, paymentIntentID });
    return found;
  });

  const confirm = (payment_method) =>
    stripe.paymentIntents.confirm(intent.id, { payment_method, return_url: 'https://shop.example/checkout' });

  await step('the customer is found again, and gets another intent', async () => {
    const { paymentIntentID } = await initiate();
    assert.notEqual(paymentIntentID, intent.id);
    const { data } = await get(`/v1/customers?email=${EMAIL}`, apiKey);
    assert.deepEqual(data.map(({ id }) => id), [intent.customer]);
  });

  await step('a card declines, and there is no order', async () => {
    await assert.rejects(confirm('pm_card_chargeDeclined'), { type: 'StripeCardError', code: 'card_declined' });
    await assert.rejects(confirmOrder(intent.id), /Payment not completed/);
    assert.deepEqual(orders, []);
  });

  await step('another card pays, and Payload finds that all is as the customer ordered', async () => {
    const { status, amount_received } = await confirm('pm_card_visa');
    assert.deepEqual([status, amount_received], ['succeeded', 2150]);
    assert.equal((await confirmOrder(intent.id)).orderID, 'order-1');
    assert.deepEqual(orders, [{
      id: 'order-1',
      amount: 2150,
      currency: 'USD',
      customerEmail: EMAIL,
      items: ITEMS,
      shippingAddress: ADDRESS,
      status: 'processing',
      transactionID: transactions[0].id,
    }]);
  });

  await step('another amount at Stripe than in the shop makes no order', async () => {
    transactions[0].amount = 2000;
    await assert.rejects(confirmOrder(intent.id), /amount does not match/);
    assert.equal(orders.length, 1);
  });

  const { body, headers } = await delivery('payment_intent.succeeded', intent.id);
  const hear = async (text) => {
    const [{ handler }] = adapter.endpoints;
    return (await handler({ payload, headers: new Headers(headers), text: async () => text })).status;
  };

  await step('payment_intent.succeeded is delivered, and the shop hears of it', async () => {
    assert.equal(await hear(`${body}`), 200);
    assert.deepEqual(heard, [intent.id]);
  });

  await step('it hears of nothing that was tampered with', async () => {
    assert.equal(await hear(`${body} `), 400);
    assert.deepEqual(heard, [intent.id]);
  });
});
