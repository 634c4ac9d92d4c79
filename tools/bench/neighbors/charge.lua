-- An account that creates charges, each with a key of its own.
local number = 0
local run = tostring(os.time())
local headers = {
  ["Authorization"] = "Bearer " .. os.getenv("API_KEY"),
  ["Content-Type"] = "application/json",
}
local body = '{"amount":2000,"currency":"usd","source":"tok_visa"}'

request = function()
  number = number + 1
  headers["Idempotency-Key"] = run .. "-" .. number
  return wrk.format("POST", "/charges", headers, body)
end

done = function(summary, latency)
  io.write(string.format("p50 %.1f ms, p99 %.1f ms, longest %.1f ms, %d charges, %d refused\n",
    latency:percentile(50) / 1000, latency:percentile(99) / 1000, latency.max / 1000,
    summary.requests, summary.errors.status))
end
