-- Events of a category, by position, at the same instant as what was trimmed away from it.
-- keys: index, meta
-- args: tag, category, min, max, how many at most
-- answers: what was trimmed away, then name of the stream and event by turns
local function category(keys, args)
  local members = redis.call('ZRANGEBYLEX', keys[1], args[3], args[4], 'LIMIT', 0, args[5])
  local answer, bases = { redis.call('HGET', keys[2], 'trims:' .. args[2]) }, {}
  for i = 1, #members do
    local stream, number = string.match(members[i], '^G[^%z]*%z[^%z]*%z([^%z]*)%z(%d+)$')
    local list = args[1] .. 'E' .. stream
    bases[stream] = bases[stream] or number_of(redis.call('LINDEX', list, 0))
    answer[#answer + 1] = stream
    answer[#answer + 1] = redis.call('LINDEX', list, tonumber(number) - bases[stream])
  end
  return answer
end
