-- The first event of a stream that is not older than a time.
-- keys: list
-- args: time in microseconds
-- answers: its number and its time; if there is none, the number of the last event
local function since(keys, args)
  local time, length, last = tonumber(args[1]), redis.call('LLEN', keys[1]), 0
  for from = 0, length - 1, 200 do
    local some = redis.call('LRANGE', keys[1], from, from + 199)
    for i = 1, #some do
      local number, at = string.match(some[i], '^%x+ (%d+) (%-?%d+)\n')
      if tonumber(at) >= time then
        return { number, at }
      end
      last = number
    end
  end
  return { last }
end
