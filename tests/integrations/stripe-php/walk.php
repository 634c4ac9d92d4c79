<?php
// stripe-php, unmodified: which of its requests have a key when they time out and are sent again.

require __DIR__ . '/../support.php';
require getenv('CHECKOUTS') . '/stripe-php-21/init.php';

use Stripe\ApiRequestor;
use Stripe\HttpClient\CurlClient;
use Stripe\Stripe;
use Stripe\StripeClient;

$key = account();
[$socket] = endpoint($key);
$client = new CurlClient();
$client->setTimeout(1);
ApiRequestor::setHttpClient($client);

/** Makes one call whose first request takes longer than the client waits. */
$charge = function (int $amount, array $options) use ($key) {
    $delay = ['route' => 'POST /v1/payment_intents', 'fault' => 'delay', 'seconds' => 2, 'first' => 1];
    ask('POST', '/test/faults', $key, $delay);
    $config = ['api_key' => $key, 'api_base' => getenv('CHARGE_ONCE_URL')] + $options;
    return (new StripeClient($config))->paymentIntents->create([
        'amount' => $amount,
        'confirm' => true,
        'currency' => 'usd',
        'payment_method' => 'pm_card_visa',
        'return_url' => 'https://shop.example/',
    ])->id;
};
$charged = function (int $amount) use ($key) {
    $all = ask('GET', '/v1/payment_intents', $key)['data'];
    return array_column(array_filter($all, fn ($intent) => $intent['amount'] === $amount), 'status', 'id');
};

step('with Stripe::setMaxNetworkRetries, and with retries of its own, a client\'s call charges');
Stripe::setMaxNetworkRetries(1);
$once = [$charge(1001, []), $charge(1002, ['max_network_retries' => 1])];

step('with its own alone, it charges twice');
Stripe::setMaxNetworkRetries(0);
$known = $charge(1003, ['max_network_retries' => 1]);
// Each webhook is of a request that was executed, and those above began before.
for ($left = 2; $left > 0;) {
    [, $body] = delivery('payment_intent.succeeded', $socket);
    $left -= (int) (json_decode($body)->data->object->amount === 1003);
}
$both = $charged(1003);
same([true, ['succeeded', 'succeeded']], [isset($both[$known]), array_values($both)]);

step('the others charged once');
same([[$once[0]], [$once[1]]], [array_keys($charged(1001)), array_keys($charged(1002))]);
echo "ok\n";
