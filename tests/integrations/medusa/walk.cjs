// Medusa's provider for Stripe, unmodified, through the lives of a few payments.

'use strict';

const assert = require('node:assert/strict');

const { generateEntityId } = require('@medusajs/framework/utils');
const { default: PaymentModuleService } = require('@medusajs/payment/dist/services/payment-module.js');
const { default: StripeProviderService } = require('@medusajs/payment-stripe/dist/services/stripe-provider.js');
const Stripe = require('stripe');

const { account, authenticate, get, loseReplies, step, walk } = require('../support.cjs');

const RETURN_URL = 'https://shop.example/checkout';

const CUSTOMER = {
  id: 'cus_medusa',
  email: 'ann@example.com',
  first_name: 'Ann',
  last_name: 'Bo',
  phone: null,
  billing_address: {
    address_1: 'Rheinweg 1',
    address_2: null,
    city: 'Bonn',
    country_code: 'de',
    postal_code: '53111',
    province: null,
  },
};

/** Medusa's service of payments, with a Medusa around it that has this payment. */
function shop(provider, payment) {
  // Nothing happens at once here that the lock of a row would keep apart.
  const query = { where: () => query, forUpdate: () => query, select: async () => [] };
  const knex = Object.assign(() => query, { raw: async () => {} });
  const refundService = {
    // As the model of a refund makes its id.
    create: async ({ amount }) => {
      const refund = { id: generateEntityId(undefined, 'ref'), raw_amount: { value: `${amount}` } };
      payment.refunds.push(refund);
      return refund;
    },
    delete: async ([{ id }]) => {
      payment.refunds = payment.refunds.filter((refund) => refund.id !== id);
    },
  };
  const manager = { getTransactionContext: () => knex };
  return Object.assign(Object.create(PaymentModuleService.prototype), {
    __container__: { refundService },
    baseRepository_: { getFreshManager: () => manager, transaction: (work) => work(manager) },
    paymentService_: { retrieve: async () => ({ ...payment }), update: async () => {} },
    paymentProviderService_: { refundPayment: (_, input) => provider.refundPayment(input) },
    refundService_: refundService,
    maybeUpdatePaymentCollection_: async () => {},
    retrievePayment: async () => payment,
  });
}

walk('medusa', async () => {
  const { apiKey, webhookSecret, delivery } = await account('*');
  const provider = new StripeProviderService({ logger: console }, { apiKey, webhookSecret });
  // The storefront and the shop's staff.
  const stripe = new Stripe(apiKey);

  const holder = await step('a customer gets an account', async () => {
    const context = { customer: CUSTOMER, idempotency_key: CUSTOMER.id };
    const made = await provider.createAccountHolder({ context });
    assert.match(made.id, /^cus_/);
    const { email, name, phone, address } = made.data;
    assert.deepEqual([email, name, phone], ['ann@example.com', 'Ann Bo', null]);
    assert.deepEqual([address.city, address.line1, address.line2], ['Bonn', 'Rheinweg 1', null]);
    assert.equal(address.country.toLowerCase(), 'de');
    assert.equal((await provider.createAccountHolder({ context })).id, made.id);
    return made;
  });
  // What @medusajs/payment passes with each call.
  const context = (idempotency_key) => ({ idempotency_key, customer: CUSTOMER, account_holder: holder });

  await step('its name changes', async () => {
    const customer = { ...CUSTOMER, company_name: 'Bo Ltd', phone: '+49 228 1' };
    const { data } = await provider.updateAccountHolder({ context: { ...context(), customer } });
    assert.deepEqual([data.id, data.name, data.phone], [holder.id, 'Bo Ltd', '+49 228 1']);
  });

  const initiate = (session_id, data = {}, idempotency_key = session_id) =>
    provider.initiatePayment({
      amount: 20,
      currency_code: 'usd',
      data: { session_id, ...data },
      context: context(idempotency_key),
    });

  const session = await step('a payment session begins', async () => {
    const { id, status, data } = await initiate('payses_1');
    assert.match(id, /^pi_/);
    assert.equal(status, 'pending');
    assert.deepEqual([data.id, data.amount, data.currency], [id, 2000, 'usd']);
    assert.deepEqual([data.status, data.capture_method], ['requires_payment_method', 'manual']);
    assert.deepEqual([data.customer, data.metadata.session_id], [holder.id, 'payses_1']);
    assert.ok(data.client_secret.startsWith(`${id}_secret_`));
    return data;
  });

  await step('begun again under the same key, it is the same session', async () => {
    assert.deepEqual((await initiate('payses_1')).data, session);
  });

  const update = (amount, data) =>
    provider.updatePayment({ amount, currency_code: 'usd', data, context: context() });

  await step('an update to the same amount sends no request', async (requests) => {
    assert.equal((await update(20, session)).status, 'pending');
    assert.deepEqual(requests, []);
  });

  await step('an update to another amount does', async () => {
    const { status, data } = await update(21.5, session);
    assert.deepEqual([status, data.amount], ['pending', 2150]);
  });

  const input = { data: { id: session.id, currency: 'usd' } };
  const as = (idempotency_key) => ({ ...input, context: context(idempotency_key) });

  await step('it is pending until the customer pays', async () => {
    assert.equal((await provider.authorizePayment(input)).status, 'pending');
  });

  await step('the storefront confirms, and it is authorized', async () => {
    const card = { payment_method: 'pm_card_visa', return_url: RETURN_URL };
    const confirmed = await stripe.paymentIntents.confirm(session.id, card);
    assert.deepEqual([confirmed.status, confirmed.amount_capturable], ['requires_capture', 2150]);
    const { status, data } = await provider.authorizePayment(input);
    assert.equal(status, 'authorized');
    assert.deepEqual([data.payment_method.type, data.payment_method.card.last4], ['card', '4242']);
  });

  await step('it is captured', async () => {
    const { data } = await provider.capturePayment(as('capt_1'));
    assert.deepEqual([data.status, data.amount_received], ['succeeded', 2150]);
  });

  await step('a capture under another key finds it captured', async () => {
    const { data } = await provider.capturePayment(as('capt_2'));
    assert.deepEqual([data.id, data.status, data.amount_received], [session.id, 'succeeded', 2150]);
  });

  await step('the shop reads its amount', async () => {
    const { data } = await provider.retrievePayment(input);
    assert.deepEqual([data.id, data.amount], [session.id, 21.5]);
  });

  await step('5.00 and the rest are refunded, and a refund beyond that is content', async () => {
    for (const [amount, key] of [[5, 'ref_1'], [16.5, 'ref_2'], [1, 'ref_3']]) {
      await provider.refundPayment({ ...as(key), amount });
    }
    const { data } = await stripe.refunds.list({ payment_intent: session.id });
    assert.deepEqual(data.map(({ amount }) => amount), [1650, 500]);
  });

  const atOnce = (payment_method) => ({ confirm: true, payment_method, return_url: RETURN_URL });

  // medusajs/medusa#16681: the key is the id of a refund that Medusa deletes when it gets no reply.
  await step('the reply to a refund is lost, and ordered again, it is made twice', async (requests) => {
    const paid = { ...atOnce('pm_card_visa'), capture_method: 'automatic' };
    const { id } = await initiate('payses_6', paid);
    const payment = {
      id: 'pay_1',
      data: { id, currency: 'usd' },
      provider_id: 'pp_stripe_stripe',
      captures: [{ raw_amount: { value: '20' } }],
      refunds: [],
    };
    const medusa = shop(provider, payment);
    const refund = () => medusa.refundPayment({ payment_id: payment.id, amount: 5 });

    const arrive = await loseReplies(apiKey, 'POST /v1/refunds');
    await assert.rejects(refund(), /error occurred in refundPayment/);
    assert.deepEqual(payment.refunds, []);
    await arrive();
    await refund();

    const sent = requests.filter(({ request }) => request.path === '/v1/refunds');
    const keys = [...new Set(sent.map(({ request }) => request.getHeader('idempotency-key')))];
    const { data } = await get(`/v1/refunds?payment_intent=${id}`, apiKey);
    console.log(`          Medusa sent ${keys.join(' and ')}, and knows one refund; there are ${data.length}`);
    assert.equal(keys.length, 2);
    for (const key of keys) assert.match(key, /^ref_/);
    assert.deepEqual(payment.refunds.map((each) => each.id), keys.slice(1));
    assert.deepEqual(data.map(({ amount, status }) => [amount, status]), [[500, 'succeeded'], [500, 'succeeded']]);
    const { findings } = await get('/test/report', apiKey);
    const [double] = findings.filter(({ type }) => type === 'double_effect');
    assert.deepEqual(double.objects, data.map((refund) => refund.id).reverse());
    console.log(`          The report: ${double.title}`);
  });

  await step('a payment that succeeded is not canceled', async () => {
    await assert.rejects(provider.cancelPayment(as('canc_1')), /error occurred in cancelPayment/);
  });

  const declined = await step('a session with a card that declines is in error, and so again', async () => {
    const card = { ...atOnce('pm_card_chargeDeclined'), off_session: true };
    const { id, status, data } = await initiate('payses_2', card);
    assert.match(id, /^pi_/);
    assert.deepEqual([status, data.status], ['error', 'requires_payment_method']);
    assert.deepEqual([data.amount, data.customer], [2000, holder.id]);
    assert.equal(data.last_payment_error.decline_code, 'generic_decline');
    assert.deepEqual((await initiate('payses_2', card)).data, data);
    return data;
  });

  const unkeyed = await step('a session without a key is canceled when it is deleted, and stays so', async () => {
    const { id } = await initiate('payses_3', {}, undefined);
    for (const key of [undefined, 'canc_2']) {
      const { data } = await provider.deletePayment({ data: { id }, context: context(key) });
      assert.deepEqual([data.id, data.status], [id, 'canceled']);
    }
    return id;
  });

  const authenticated = await step('a bank asks the customer, who agrees', async () => {
    const { id, status, data } = await initiate('payses_4', atOnce('pm_card_threeDSecure2Required'));
    assert.equal(status, 'requires_more');
    const back = await authenticate(data, 'complete');
    assert.equal(back.origin + back.pathname, RETURN_URL);
    assert.equal(back.searchParams.get('payment_intent'), id);
    assert.equal(back.searchParams.get('redirect_status'), 'succeeded');
    assert.equal((await provider.authorizePayment({ data: { id } })).status, 'authorized');
    return id;
  });

  const saved = await step('a card is saved and listed', async () => {
    const card = { ...atOnce('pm_card_visa'), usage: 'off_session' };
    const { id, data } = await provider.savePaymentMethod({ data: card, context: context('seti_1') });
    assert.match(id, /^seti_/);
    assert.deepEqual([data.status, data.customer], ['succeeded', holder.id]);
    const listed = await provider.listPaymentMethods({ context: context() });
    assert.deepEqual(listed.map((method) => method.id), [data.payment_method]);
    assert.equal(listed[0].data.card.last4, '4242');
    return data.payment_method;
  });

  await step('the saved card pays without its customer', async () => {
    const { status, data } = await initiate('payses_5', { ...atOnce(saved), off_session: true });
    assert.deepEqual([status, data.payment_method.id], ['authorized', saved]);
  });

  await step('the card and then the account are removed', async () => {
    await provider.deletePaymentMethod({ data: { id: saved }, context: context('detach_1') });
    assert.deepEqual(await provider.listPaymentMethods({ context: context() }), []);
    await provider.deleteAccountHolder({ context: context() });
    await assert.rejects(provider.deleteAccountHolder({ context: context() }), /error occurred in deleteAccountHolder/);
  });

  for (const [type, id, action, session_id, amount] of [
    ['payment_intent.created', session.id, 'pending', 'payses_1', 20],
    ['payment_intent.amount_capturable_updated', session.id, 'authorized', 'payses_1', 21.5],
    ['payment_intent.succeeded', session.id, 'captured', 'payses_1', 21.5],
    ['payment_intent.payment_failed', declined.id, 'failed', 'payses_2', 20],
    ['payment_intent.created', authenticated, 'pending', 'payses_4', 20],
    ['payment_intent.requires_action', authenticated, 'requires_more', 'payses_4', 20],
    ['payment_intent.canceled', unkeyed, 'canceled', 'payses_3', 20],
  ]) {
    await step(`${type} is delivered, and Medusa acts on it: ${action}`, async () => {
      const { body, headers, event } = await delivery(type, id);
      const told = { data: event, rawData: body, headers };
      const answer = await provider.getWebhookActionAndData(told);
      assert.equal(answer.action, action);
      assert.deepEqual([answer.data.session_id, Number(answer.data.amount)], [session_id, amount]);
      const tampered = { ...told, rawData: Buffer.from(`${body} `) };
      await assert.rejects(provider.getWebhookActionAndData(tampered), /constructWebhookEvent/);
    });
  }
});
