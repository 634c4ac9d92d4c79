<?php
// WooCommerce's gateway to Stripe, unmodified, among stand-ins for WordPress and WooCommerce.

require __DIR__ . '/../support.php';
require __DIR__ . '/wordpress.php';

$key = account();
define('WC_STRIPE_PLUGIN_PATH', getenv('CHECKOUTS') . '/woocommerce-gateway-stripe');
const WC_STRIPE_PLUGIN_URL = 'https://shop.example';
const WC_STRIPE_VERSION = '8.8.0';
Store::$options['woocommerce_stripe_settings'] = [
    'testmode' => 'yes',
    'test_secret_key' => $key,
    'upe_checkout_experience_enabled' => 'yes',
    'upe_checkout_experience_accepted_payments' => ['card'],
];
$settings = &Store::$options['woocommerce_stripe_settings'];

// What its own first file loads, in that order, but for its pages.
$loader = file_get_contents(WC_STRIPE_PLUGIN_PATH . '/woocommerce-gateway-stripe.php');
$pages = 'admin|class-wc-stripe-blocks|deprecated|migrations';
preg_match_all("#dirname\( __FILE__ \) \. '(/includes/(?!$pages)[^']+)'#", $loader, $files);
foreach (['/includes/class-wc-stripe-api.php', ...$files[1]] as $file) {
    require_once WC_STRIPE_PLUGIN_PATH . $file;
}

class Gateway extends WC_Stripe_UPE_Payment_Gateway
{
    /** The form of its settings is a page. */
    public function init_form_fields()
    {
    }
}

/** An order of this many dollars: its number. */
function ordered(string $total): int
{
    $number = 3001 + count(Store::$orders);
    Store::$orders[$number] = [
        'billing_country' => 'US',
        'billing_email' => 'ann@example.com',
        'billing_first_name' => 'Ann',
        'billing_last_name' => 'Bo',
        'currency' => 'USD',
        'customer_id' => 1,
        'order_key' => "wc_order_$number",
        'order_number' => "$number",
        'payment_method' => 'stripe',
        'shipping_tax' => '0',
        'shipping_total' => '0',
        'status' => 'pending',
        'total' => $total,
    ];
    return $number;
}

$gateway = new Gateway();
/** The shopper pays: what they are told, and the order's status. */
$pay = function (int $order, string $card = 'pm_card_visa') {
    // A request to the shop, with a PHP of its own.
    WooCommerce::$gateways['stripe'] = new Gateway();
    $_POST = ['payment_method' => 'stripe', 'wc-stripe-payment-method' => $card];
    $_POST['wc-stripe-is-deferred-intent'] = '1';
    $answer = WooCommerce::$gateways['stripe']->process_payment($order);
    return [$answer['result'], wc_get_order($order)->get_status()];
};
$paid = ['success', 'processing'];
$failed = ['failure', 'failed'];
$intents = function (int $order) use ($key) {
    $all = ask('GET', '/v1/payment_intents', $key, ['limit' => 100])['data'];
    return array_values(array_filter($all, fn ($intent) => ($intent['metadata']['order_id'] ?? '') === "$order"));
};
$succeeded = fn (int $order) => array_count_values(array_column($intents($order), 'status'))['succeeded'] ?? 0;
$charge = fn (int $order) => wc_get_order($order)->get_transaction_id();
$refunds = fn (int $order) => array_column(
    ask('GET', '/v1/refunds', $key, ['charge' => $charge($order)])['data'],
    'amount',
);
$ann = &Store::$users[1];
$ann = ['first_name' => 'Ann', 'last_name' => 'Bo'];

step('an order is paid, of a customer who is made for it, without the level 3 data that is refused');
$first = ordered('21.50');
same($paid, $pay($first));
[$intent] = $intents($first);
same(['succeeded', 2150], [$intent['status'], $intent['amount_received']]);
same([$ann['_stripe_customer_id'], $charge($first)], [$intent['customer'], $intent['latest_charge']]);
same(true, get_transient('wc_stripe_level3_not_allowed'));

step('it is refunded in part, and not beyond');
same(true, $gateway->process_refund($first, '5.00', 'A scratch'));
same(true, is_wp_error($gateway->process_refund($first, '16.51')));
same([500], $refunds($first));

step('a declined order fails, and another card pays it by the same intent');
$order = ordered('30.00');
same($failed, $pay($order, 'pm_card_chargeDeclined'));
same(1, preg_match('/declined/', end(Store::$notices)));
same($paid, $pay($order));
same([1, 1], [count($intents($order)), $succeeded($order)]);

step('a customer who is gone is made again');
$ann['_stripe_customer_id'] = 'cus_01m7ynnkjjebqvvpwpd3ssrep0';
$order = ordered('10.00');
same($paid, $pay($order));
same($ann['_stripe_customer_id'], $intents($order)[0]['customer']);

step('a bank asks, the customer agrees, and the order is paid');
$order = ordered('40.00');
same(['success', 'pending'], $pay($order, 'pm_card_threeDSecure2Required'));
[$intent] = $intents($order);
$answer = curl_init($intent['next_action']['redirect_to_url']['url']);
curl_setopt_array($answer, [CURLOPT_POSTFIELDS => 'outcome=complete', CURLOPT_RETURNTRANSFER => true]);
curl_exec($answer);
$gateway->process_upe_redirect_payment($order, $intent['id'], false);
same('processing', wc_get_order($order)->get_status());
same([1, $charge($order)], [$succeeded($order), $intents($order)[0]['latest_charge']]);

step('a payment is held, and voided');
$settings['capture'] = 'no';
$order = ordered('50.00');
same(['success', 'on-hold'], $pay($order));
same('requires_capture', $intents($order)[0]['status']);
thrown(Exception::class, fn () => $gateway->process_refund($order, '50.00'));
same(['cancelled', 'canceled'], [wc_get_order($order)->get_status(), $intents($order)[0]['status']]);
unset($settings['capture']);

step('a card is saved, the default, and removed');
$customer = new WC_Stripe_Customer(1);
$card = $customer->attach_source('pm_card_visa')->id;
same(true, $customer->set_default_payment_method($card));
same([$card], array_column($customer->get_payment_methods('card'), 'id'));
same(true, $customer->detach_payment_method($card));
same([], $customer->get_payment_methods('card'));

step('a guest who comes again is the same customer');
$_POST = ['billing_email' => 'eve@example.com', 'billing_first_name' => 'Eve', 'billing_last_name' => 'Ng'];
$guest = (new WC_Stripe_Customer())->create_customer();
same($guest, (new WC_Stripe_Customer())->create_customer());

// The key is made of an order and a card. Orders are no longer paid by charges.
step('a charge has a key: its reply is lost, and ordered again, it is made once');
$request = ['amount' => 1230, 'currency' => 'usd', 'source' => 'tok_visa', 'metadata' => ['order_id' => '2999']];
lose_reply('POST /v1/charges', $key);
thrown(WC_Stripe_Exception::class, fn () => WC_Stripe_API::request($request));
$made = WC_Stripe_API::request($request)->id;
$all = array_filter(ask('GET', '/v1/charges', $key)['data'], fn ($each) => $each['amount'] === 1230);
same([$made], array_column($all, 'id'));

// woocommerce/woocommerce-gateway-stripe#2339.
step('an order whose payment has no reply fails, and paid again, is paid twice');
$order = ordered('11.00');
lose_reply('POST /v1/payment_intents', $key);
same($failed, $pay($order));
same(1, preg_match('/problem connecting to the Stripe API/', end(Store::$notices)));
same($paid, $pay($order));
same(2, $succeeded($order));
report('double_effect', array_reverse(array_column($intents($order), 'id')), $key);

// woocommerce/woocommerce-gateway-stripe#3725.
step('and so is one whose payment has a reply, if its charge is then read in vain');
$order = ordered('12.00');
Store::$answer_instead['#/v1/charges/#'] = new WP_Error('http_request_failed', 'timed out');
same($failed, $pay($order));
Store::$answer_instead = [];
same($paid, $pay($order));
same(2, $succeeded($order));

step('a partial refund without a reply is an error, and ordered again, is made twice');
$order = ordered('20.00');
$pay($order);
lose_reply('POST /v1/refunds', $key);
same(true, is_wp_error($gateway->process_refund($order, '4.00')));
same(true, $gateway->process_refund($order, '4.00'));
same([400, 400], $refunds($order));

step('a webhook tells of a refund that was made elsewhere');
[$socket, $settings['test_webhook_secret']] = endpoint($key);
$handler = new WC_Stripe_Webhook_Handler();
ask('POST', '/v1/refunds', $key, ['charge' => $charge($order), 'amount' => 200]);
[$signature, $body] = delivery('charge.refunded', $socket);
$headers = ['STRIPE-SIGNATURE' => $signature];
same(WC_Stripe_Webhook_State::VALIDATION_FAILED_SIGNATURE_MISMATCH, $handler->validate_request($headers, "$body "));
same(WC_Stripe_Webhook_State::VALIDATION_SUCCEEDED, $handler->validate_request($headers, $body));
$handler->process_webhook($body);
same([['order_id' => $order, 'amount' => 2, 'reason' => 'Refunded via Stripe Dashboard']], Store::$refunds);
echo "ok\n";
