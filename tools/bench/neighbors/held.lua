-- Another account, whose keys are all held by a transaction elsewhere.
local number = 0
local headers = {
  ["Authorization"] = "Bearer sk_test_ChargeOnceDevelopmentKey00",
  ["Content-Type"] = "application/json",
}
local body = '{"amount":2000,"currency":"usd","source":"tok_visa"}'

request = function()
  number = number % 10000 + 1
  headers["Idempotency-Key"] = "held-" .. number
  return wrk.format("POST", "/charges", headers, body)
end
