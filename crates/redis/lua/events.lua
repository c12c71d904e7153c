-- Events of a stream, which is a list without gaps. Each begins with "position number time\n".
-- keys: list
-- args: "after" or "before", a number, how many at most
-- answers: events in order
local function number_of(event)
  return tonumber(string.match(event, '^%x+ (%d+) '))
end

local function events(keys, args)
  local first = redis.call('LINDEX', keys[1], 0)
  if not first then
    return {}
  end
  local base, length = number_of(first), redis.call('LLEN', keys[1])
  local from, to
  if args[1] == 'after' then
    from = math.max(tonumber(args[2]) + 1 - base, 0)
    to = from + tonumber(args[3]) - 1
  else
    to = math.min(tonumber(args[2]) - base, length) - 1
    from = math.max(to - tonumber(args[3]) + 1, 0)
  end
  if from >= length or to < 0 then
    return {}
  end
  return redis.call('LRANGE', keys[1], from, math.min(to, length - 1))
end
