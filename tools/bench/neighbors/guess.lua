-- Strangers, who try one API key after the other.
local number = 0
local run = tostring(os.time())

request = function()
  number = number + 1
  local headers = { ["Authorization"] = "Bearer sk_test_" .. run .. number }
  return wrk.format("GET", "/charges", headers)
end
