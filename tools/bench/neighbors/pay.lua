-- Another account, whose requests all want one order, which is locked.
local number = 0
local run = tostring(os.time())
local path = "/orders/" .. os.getenv("LOCKED_ORDER") .. "/pay"
local headers = {
  ["Authorization"] = "Bearer sk_test_ChargeOnceDevelopmentKey00",
  ["Content-Type"] = "application/json",
}

request = function()
  number = number + 1
  headers["Idempotency-Key"] = run .. "-" .. number
  return wrk.format("POST", path, headers, '{"source":"tok_visa"}')
end
