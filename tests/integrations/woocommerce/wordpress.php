<?php
// As much of WordPress and WooCommerce as the gateway asks for on its way to Stripe. Their database is
// arrays: an order is read from them anew each time, and written by save().

const ABSPATH = __DIR__;
const DAY_IN_SECONDS = 86400;
const HOUR_IN_SECONDS = 3600;
const MINUTE_IN_SECONDS = 60;
const MONTH_IN_SECONDS = 30 * DAY_IN_SECONDS;
const WC_VERSION = '9.3.3';

final class Store
{
    /** WP_Errors that requests get, by patterns of their addresses. */
    public static array $answer_instead = [];
    public static array $notices = [];
    public static array $options = [];
    public static array $orders = [];
    public static array $refunds = [];
    public static array $transients = [];
    public static array $users = [];
}

// Nothing else is hooked into the gateway. A text stays as it is, and no page is asked for.
foreach (
    [
        '__', 'apply_filters 1', 'esc_attr', 'esc_html', 'esc_url', 'esc_url_raw', 'sanitize_email',
        'sanitize_text_field', 'sanitize_title', 'wc_clean', 'wc_price', 'wp_sanitize_redirect',
        'wp_specialchars_decode', 'wp_strip_all_tags', 'wp_unslash',
    ] as $function
) {
    [$name, $position] = explode(' ', $function) + [1 => 0];
    eval("function $name(...\$given) { return \$given[$position]; }");
}
foreach (
    [
        'add_action', 'add_filter', 'current_user_can', 'do_action', 'get_current_user_id', 'is_account_page',
        'is_add_payment_method_page', 'is_admin', 'is_checkout', 'is_user_logged_in', 'is_wc_endpoint_url',
        'wc_reduce_stock_levels', 'wp_create_nonce',
    ] as $name
) {
    eval("function $name(...\$given) { return 0; }");
}
foreach (
    [
        'get_bloginfo' => 'Shop', 'get_locale' => 'en_US', 'get_site_url' => 'https://shop.example',
        'get_user_locale' => 'en_US', 'get_woocommerce_currency' => 'USD', 'wc_get_price_decimals' => 2,
    ] as $name => $value
) {
    eval("function $name(...\$given) { return " . var_export($value, true) . '; }');
}

function absint($number)
{
    return abs((int) $number);
}
function add_query_arg($given, $url)
{
    return $url . '?' . http_build_query($given);
}
function delete_transient($name)
{
    unset(Store::$transients[$name]);
}
function delete_user_option($user, $name)
{
    unset(Store::$users[$user][$name]);
}
function get_option($name, $default = false)
{
    return Store::$options[$name] ?? $default;
}
function get_transient($name)
{
    return Store::$transients[$name] ?? false;
}
function get_user_by($field, $id)
{
    return new WP_User($id);
}
function get_user_meta($user, $name, $single)
{
    return Store::$users[$user][$name] ?? '';
}
function get_user_option($name, $user)
{
    return Store::$users[$user][$name] ?? false;
}
function is_wp_error($value)
{
    return $value instanceof WP_Error;
}
function set_transient($name, $value)
{
    Store::$transients[$name] = $value;
}
function update_option($name, $value)
{
    Store::$options[$name] = $value;
}
function update_user_option($user, $name, $value)
{
    Store::$users[$user][$name] = $value;
}
function WC()
{
    return new WooCommerce();
}
function wc_add_notice($text)
{
    Store::$notices[] = $text;
}
function wc_bool_to_string($value)
{
    return $value ? 'yes' : 'no';
}
function wc_create_refund($refund)
{
    Store::$refunds[] = $refund;
}
function wc_format_decimal($number, $decimals)
{
    return number_format((float) $number, $decimals, '.', '');
}
function wc_get_order($id)
{
    return isset(Store::$orders[$id]) ? new WC_Order($id) : false;
}
function wc_get_orders($query)
{
    // By the id of a charge, or by meta data.
    $meta = $query['meta_query'][0] ?? null;
    $is_asked_for = fn ($order) => $meta
        ? ($order['meta'][$meta['key']] ?? '') === $meta['value']
        : ($order['transaction_id'] ?? '') === $query['transaction_id'];
    return array_map('wc_get_order', array_keys(array_filter(Store::$orders, $is_asked_for)));
}
function wp_get_current_user()
{
    return new WP_User(0);
}
function wp_json_encode($value)
{
    return json_encode($value);
}
function wp_parse_args($given, $defaults)
{
    return array_merge($defaults, $given);
}
function wp_remote_retrieve_headers($response)
{
    return is_wp_error($response) ? [] : $response['headers'];
}

// Of WordPress's HTTP: each request has a connection of its own, and the parameters of a GET are its query.
function wp_safe_remote_post($url, $given)
{
    foreach (Store::$answer_instead as $pattern => $error) {
        if (preg_match($pattern, $url)) {
            return $error;
        }
    }
    $url = str_replace('https://api.stripe.com', getenv('CHARGE_ONCE_URL'), $url);
    $parameters = http_build_query($given['body'] ?? []);
    $is_query = $given['method'] === 'GET' && $parameters !== '';
    $request = curl_init($is_query ? "$url?$parameters" : $url);
    $header = fn ($name, $value) => "$name: $value";
    curl_setopt_array($request, [
        CURLOPT_CUSTOMREQUEST => $given['method'],
        CURLOPT_HTTPHEADER => array_map($header, array_keys($given['headers']), $given['headers']),
        CURLOPT_RETURNTRANSFER => true,
        CURLOPT_TIMEOUT => $given['timeout'],
    ] + ($given['method'] === 'POST' ? [CURLOPT_POSTFIELDS => $parameters] : []));
    $body = curl_exec($request);
    return $body === false
        ? new WP_Error('http_request_failed', curl_error($request))
        : ['headers' => [], 'body' => $body];
}
function wp_safe_remote_get($url, $given)
{
    return wp_safe_remote_post($url, $given);
}

final class WP_Error
{
    public function __construct(public $code, public $message)
    {
    }
}

final class WP_User
{
    public $user_email = 'ann@example.com';
    public $user_login = 'ann';

    public function __construct(public $ID)
    {
    }
}

/** A shop in the US. */
final class WooCommerce
{
    public static array $gateways = [];
    public $cart = null;
    public $countries;

    public function __construct()
    {
        $this->countries = new class {
            public function get_base_country()
            {
                return 'US';
            }
        };
    }
    public function payment_gateways()
    {
        return new class {
            public function payment_gateways()
            {
                return WooCommerce::$gateways;
            }
        };
    }
}

/** Orders have tables of their own. */
final class OrderTables
{
    public static function custom_orders_table_usage_is_enabled()
    {
        return true;
    }
}
class_alias(OrderTables::class, 'Automattic\WooCommerce\Utilities\OrderUtil');

class WC_Payment_Gateway
{
    public $enabled = 'yes';
    public $settings = [];

    public function get_option($name, $default = null)
    {
        return $this->settings[$name] ?? $default;
    }
    public function get_return_url($order)
    {
        return 'https://shop.example/order-received/' . $order->get_id();
    }
    public function init_settings()
    {
        $this->settings = get_option("woocommerce_{$this->id}_settings", []);
    }
}
class WC_Payment_Gateway_CC extends WC_Payment_Gateway
{
}
class WC_Payment_Token
{
}
class WC_Payment_Token_CC
{
}

final class WC_Order
{
    private array $data;

    public function __construct(private $id)
    {
        $this->data = Store::$orders[$id];
    }
    /** get_total(), set_transaction_id(…) and others of the kind. */
    public function __call($name, $given)
    {
        [$verb, $what] = explode('_', $name, 2);
        if ($verb === 'set') {
            $this->data[$what] = $given[0];
        }
        return $this->data[$what] ?? '';
    }
    public function add_order_note($note)
    {
    }
    public function delete_meta_data($name)
    {
        unset($this->data['meta'][$name]);
    }
    public function get_id()
    {
        return $this->id;
    }
    public function get_items($types)
    {
        return [];
    }
    public function get_meta($name)
    {
        return $this->data['meta'][$name] ?? '';
    }
    public function get_user()
    {
        return new WP_User($this->data['customer_id']);
    }
    public function has_status($statuses)
    {
        return in_array($this->data['status'], (array) $statuses, true);
    }
    public function payment_complete($transaction)
    {
        $this->data['transaction_id'] = $transaction;
        $this->update_status('processing');
    }
    public function save()
    {
        Store::$orders[$this->id] = $this->data;
    }
    public function update_meta_data($name, $value)
    {
        $this->data['meta'][$name] = $value;
    }
    public function update_status($status)
    {
        $this->data['status'] = $status;
        $this->save();
    }
}
