<?php
// Laravel Cashier, unmodified, on a model of Eloquent's, from a customer to refunds and webhooks.

require __DIR__ . '/../support.php';
foreach (['Carbon', 'Doctrine/Inflector', 'Psr/Container', 'Symfony/Component/HttpKernel'] as $package) {
    // Debian's.
    require "/usr/share/php/$package/autoload.php";
}

$checkouts = getenv('CHECKOUTS');
$namespaces = [
    'Laravel\\Cashier\\' => ['cashier-stripe/src/'],
    'Stripe\\' => ['stripe-php/lib/'],
    'Money\\' => ['money/src/'],
    'Illuminate\\' => ['framework/src/Illuminate/'],
    'Illuminate\\Support\\' => [
        'framework/src/Illuminate/Collections/',
        'framework/src/Illuminate/Conditionable/',
        'framework/src/Illuminate/Macroable/',
    ],
];
spl_autoload_register(function (string $class) use ($checkouts, $namespaces) {
    foreach ($namespaces as $prefix => $folders) {
        foreach (str_starts_with($class, $prefix) ? $folders : [] as $folder) {
            $file = "$checkouts/$folder" . strtr(substr($class, strlen($prefix)), '\\', '/') . '.php';
            if (is_file($file)) {
                require $file;
                return;
            }
        }
    }
});
foreach (['Collections', 'Support', 'Foundation'] as $part) {
    require "$checkouts/framework/src/Illuminate/$part/helpers.php";
}

use Illuminate\Config\Repository;
use Illuminate\Container\Container;
use Illuminate\Database\Capsule\Manager;
use Illuminate\Database\Eloquent\Model;
use Illuminate\Events\Dispatcher;
use Illuminate\Http\Request;
use Illuminate\Support\Facades\Facade;
use Laravel\Cashier\Billable;
use Laravel\Cashier\Cashier;
use Laravel\Cashier\Exceptions\CustomerAlreadyCreated;
use Laravel\Cashier\Exceptions\IncompletePayment;
use Laravel\Cashier\Exceptions\InvalidPaymentMethod;
use Laravel\Cashier\Http\Controllers\WebhookController;
use Laravel\Cashier\Http\Middleware\VerifyWebhookSignature;
use Stripe\ApiRequestor;
use Stripe\Exception\ApiConnectionException;
use Stripe\Exception\CardException;
use Stripe\Exception\InvalidRequestException;
use Stripe\HttpClient\CurlClient;
use Stripe\Stripe;
use Symfony\Component\HttpKernel\Exception\AccessDeniedHttpException;

$key = account();

// The application.
$app = Container::getInstance();
$cashier = ['secret' => $key, 'currency' => 'usd', 'currency_locale' => 'en'];
$app->instance('config', new Repository(['cashier' => $cashier]));
$app->instance('events', new Dispatcher($app));
$database = new Manager($app);
$database->addConnection(['driver' => 'sqlite', 'database' => ':memory:']);
$database->setAsGlobal();
$database->bootEloquent();
$app->instance('db.schema', $database->schema());
Facade::setFacadeApplication($app);
$database->schema()->create('users', function ($table) {
    $table->id();
    $table->string('name');
    $table->string('email');
    $table->timestamps();
});
foreach (glob("$checkouts/cashier-stripe/database/migrations/*.php") as $migration) {
    (require $migration)->up();
}

class User extends Model
{
    use Billable;
    protected $guarded = [];
}

Cashier::useCustomerModel(User::class);
Cashier::$apiBaseUrl = Stripe::$apiBase = getenv('CHARGE_ONCE_URL');

step('a user becomes a customer once');
$ann = User::create(['name' => 'Ann Bo', 'email' => 'ann@example.com']);
$made = $ann->createAsStripeCustomer(['metadata' => ['plan' => 'none']]);
same(['Ann Bo', 'ann@example.com', 'none'], [$made->name, $made->email, $made->metadata->plan]);
same([$made->id, $made->id], [$ann->fresh()->stripe_id, $ann->createOrGetStripeCustomer()->id]);
thrown(CustomerAlreadyCreated::class, fn () => $ann->createAsStripeCustomer());

step('its name changes');
$ann->update(['name' => 'Ann Bo-Li']);
same('Ann Bo-Li', $ann->syncStripeCustomerDetails()->name);

step('cards are added, one is the default, and one is removed');
same(null, $ann->defaultPaymentMethod());
$visa = $ann->updateDefaultPaymentMethod('pm_card_visa')->id;
$other = $ann->addPaymentMethod('pm_card_mastercard')->id;
same([$visa, 'visa', '4242'], [$ann->defaultPaymentMethod()->id, $ann->pm_type, $ann->pm_last_four]);
same([$other, $visa], $ann->paymentMethods()->map->id->all());
same(null, $ann->findPaymentMethod('pm_01m7ynnkjjebqvvpwpd3ssrep0'));
$bob = User::create(['name' => 'Bob', 'email' => 'bob@example.com']);
$bob->createAsStripeCustomer();
thrown(InvalidPaymentMethod::class, fn () => $bob->findPaymentMethod($visa));
$ann->deletePaymentMethod($other);
same([$visa], $ann->paymentMethods('card')->map->id->all());

$return = ['return_url' => 'https://shop.example/'];
$charge = fn (int $amount, array $options = []) => $ann->charge($amount, $visa, $return + $options);
$intents = fn () => ask('GET', '/v1/payment_intents', $key, ['customer' => $ann->stripe_id])['data'];
$refunds = fn ($id) => array_column(ask('GET', '/v1/refunds', $key, ['payment_intent' => $id])['data'], 'amount');

step('a charge succeeds');
$paid = $charge(2150);
same([true, '$21.50', 2150], [$paid->isSucceeded(), $paid->amount(), $paid->amount_received]);
same([$paid->id, $ann->id], [$ann->findPayment($paid->id)->id, $paid->customer()->id]);

step('it is refunded in part, not beyond, and then whole');
$refund = $ann->refund($paid->id, ['amount' => 500]);
same(['succeeded', 500, $paid->id], [$refund->status, $refund->amount, $refund->payment_intent]);
thrown(InvalidRequestException::class, fn () => $ann->refund($paid->id, ['amount' => 1651]));
same(1650, $ann->refund($paid->id)->amount);
$refused = thrown(InvalidRequestException::class, fn () => $ann->refund($paid->id));
same(['charge_already_refunded', [1650, 500]], [$refused->getStripeCode(), $refunds($paid->id)]);

step('one is held and captured, another is held and canceled');
$held = $charge(3000, ['capture_method' => 'manual']);
same([true, 2900], [$held->requiresCapture(), $held->capture(['amount_to_capture' => 2900])->amount_received]);
$held = $charge(3000, ['capture_method' => 'manual']);
$held->cancel();
same(true, $held->isCanceled());

step('a payment without a card waits for one');
$waits = $ann->pay(1000);
same([true, 0], [$waits->requiresPaymentMethod(), strpos($waits->clientSecret(), "{$waits->id}_secret_")]);

step('a card is declined');
$declined = thrown(CardException::class, fn () => $ann->charge(2000, 'pm_card_chargeDeclined', $return));
same([402, 'generic_decline'], [$declined->getHttpStatus(), $declined->getDeclineCode()]);

step('a bank asks');
$asked = fn () => $ann->charge(2000, 'pm_card_threeDSecure2Required', $return);
$asked = thrown(IncompletePayment::class, $asked)->payment;
same([true, $intents()[0]['id']], [$asked->requiresAction(), $asked->id]);

step('a customer is gone');
$gone = new User(['stripe_id' => 'cus_01m7ynnkjjebqvvpwpd3ssrep0']);
$refused = thrown(InvalidRequestException::class, fn () => $gone->charge(2000, $visa, $return));
same(['resource_missing', 'customer'], [$refused->getStripeCode(), $refused->getError()->param]);
same(0, strpos($refused->getMessage(), 'No such customer'));

$charged = function (int $amount) use ($intents) {
    $succeeded = fn ($intent) => [$intent['amount'], $intent['status']] === [$amount, 'succeeded'];
    return array_column(array_filter(array_reverse($intents()), $succeeded), 'id');
};

// Cashier leaves stripe-php's retries off, and stripe-php then sends no keys. It keeps its connection: if it
// ends without a byte of the reply, libcurl sends the request again on a new one.
step('one call whose reply is lost charges twice');
lose_reply('POST /v1/payment_intents', $key);
$known = $charge(1231);
$both = $charged(1231);
same([2, $known->id], [count($both), $both[1]]);
report('double_effect', $both, $key);

step('and refunds twice');
$paid = $charge(2000);
lose_reply('POST /v1/refunds', $key);
same(400, $ann->refund($paid->id, ['amount' => 400])->amount);
same([400, 400], $refunds($paid->id));

step('on a new connection it throws, and called again, charges twice');
ApiRequestor::setHttpClient(new CurlClient());
lose_reply('POST /v1/payment_intents', $key);
thrown(ApiConnectionException::class, fn () => $charge(1232));
$known = $charge(1232);
$both = $charged(1232);
same([2, $known->id], [count($both), $both[1]]);
report('double_effect', $both, $key);

step('with retries, and so keys, the one call charges once');
Stripe::setMaxNetworkRetries(1);
lose_reply('POST /v1/payment_intents', $key);
$known = $charge(1233);
same([$known->id], $charged(1233));

[$socket, $secret] = endpoint($key);
$app['config']->set('cashier.webhook', ['secret' => $secret, 'tolerance' => 300]);
$hand_over = function (string $type) use ($socket) {
    [$signature, $body] = delivery($type, $socket);
    $headers = ['HTTP_STRIPE_SIGNATURE' => $signature];
    $handle = fn ($body) => (new VerifyWebhookSignature())->handle(
        Request::create('/stripe/webhook', 'POST', server: $headers, content: $body),
        (new WebhookController())->handleWebhook(...),
    );
    thrown(AccessDeniedHttpException::class, fn () => $handle("$body "));
    same(200, $handle($body)->getStatusCode());
};

step('a webhook tells that another card is the default');
$other = $ann->addPaymentMethod('pm_card_mastercard')->id;
$default = ['invoice_settings' => ['default_payment_method' => $other]];
ask('POST', "/v1/customers/{$ann->stripe_id}", $key, $default);
$hand_over('customer.updated');
same('4444', $ann->refresh()->pm_last_four);

step('a webhook tells that the customer is deleted');
ask('DELETE', "/v1/customers/{$ann->stripe_id}", $key);
$hand_over('customer.deleted');
same([null, null], [$ann->refresh()->stripe_id, $ann->pm_type]);
echo "ok\n";
