<?php
// What the walks in PHP share: a test account, its webhooks, and steps that print themselves.

const PATIENCE_SECONDS = 30;

// The gateway of WooCommerce makes properties as it goes, which PHP deprecates.
error_reporting(E_ALL & ~E_DEPRECATED);
set_error_handler(
    fn ($severity, $message, $file, $line) => throw new ErrorException($message, 0, $severity, $file, $line),
    error_reporting(),
);

/** Asks charge-once at its own address. */
function ask(string $method, string $path, string $key, array $parameters = []): array
{
    $url = getenv('CHARGE_ONCE_URL') . $path . ($method === 'GET' ? '?' . http_build_query($parameters) : '');
    $headers = ["authorization: Bearer $key", 'idempotency-key: ' . bin2hex(random_bytes(16))];
    $request = curl_init($url);
    curl_setopt_array($request, [
        CURLOPT_CUSTOMREQUEST => $method,
        CURLOPT_HTTPHEADER => $headers,
        CURLOPT_RETURNTRANSFER => true,
    ] + ($method === 'POST' ? [CURLOPT_POSTFIELDS => http_build_query($parameters)] : []));
    $body = curl_exec($request);
    $status = curl_getinfo($request, CURLINFO_RESPONSE_CODE);
    if ($status >= 400 || $body === false) {
        throw new Exception("$method $path: $status $body " . curl_error($request));
    }
    return json_decode($body, true);
}

/** The API key of an account of the walk's own. */
function account(): string
{
    return ask('POST', '/test/accounts', getenv('DEV_API_KEY'))['api_key'];
}

/** The next reply to a request of this route is lost. */
function lose_reply(string $route, string $key): void
{
    ask('POST', '/test/faults', $key, ['route' => $route, 'fault' => 'reply_lost', 'first' => 1]);
}

/** Checks that the report on the account has this finding about these objects, and prints its title. */
function report(string $type, array $objects, string $key): void
{
    foreach (ask('GET', '/test/report', $key)['findings'] as $finding) {
        if ($finding['type'] === $type && $finding['objects'] === $objects) {
            echo "\n    The report: {$finding['title']}\n    ";
            return;
        }
    }
    throw new Exception("no $type of " . implode(', ', $objects));
}

/** An endpoint for webhooks: its socket and its secret. */
function endpoint(string $key): array
{
    $socket = stream_socket_server('tcp://127.0.0.1:0');
    $url = 'http://' . stream_socket_get_name($socket, false) . '/stripe/webhook';
    $made = ask('POST', '/v1/webhook_endpoints', $key, ['url' => $url, 'enabled_events' => ['*']]);
    return [$socket, $made['secret']];
}

/** The next delivery of this type, its signature and its body. Those before are passed over. */
function delivery(string $type, $socket): array
{
    do {
        $connection = stream_socket_accept($socket, PATIENCE_SECONDS);
        stream_set_timeout($connection, PATIENCE_SECONDS);
        $headers = [];
        while (($line = rtrim(fgets($connection))) !== '') {
            [$name, $value] = explode(':', $line, 2) + [1 => ''];
            $headers[strtolower($name)] = trim($value);
        }
        $body = stream_get_contents($connection, (int) $headers['content-length']);
        fwrite($connection, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        fclose($connection);
    } while (json_decode($body)->type !== $type);
    return [$headers['stripe-signature'], $body];
}

function same($expected, $actual): void
{
    if ($expected !== $actual) {
        throw new Exception('expected ' . json_encode($expected) . ', and it is ' . json_encode($actual));
    }
}

/** The exception of this class that the work throws. */
function thrown(string $class, callable $work): Throwable
{
    try {
        $work();
    } catch (Throwable $thrown) {
        if ($thrown instanceof $class) {
            return $thrown;
        }
        throw $thrown;
    }
    throw new Exception("no $class was thrown");
}

/** Says what comes next, and that what came before is right. */
function step(string $sentence): void
{
    static $before = '';
    echo "$before  $sentence: ";
    $before = "ok\n";
}
