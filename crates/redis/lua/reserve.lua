-- The first ready tasks of some queues that nobody else is about to take, reserved for a moment: two processes that claim
-- from one queue take different tasks and do not lose their plans to each other. A reservation is a hint. What decides is
-- the version of the row.
-- keys: index, reservations
-- args: tag, who reserves, for how many milliseconds, how many of each queue, then min and max of each queue
-- answers, for each queue: members, rows, 1 if some were left out because others are about to take them, 1 if there are more
local function reserve(keys, args)
  local time = redis.call('TIME')
  local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
  local mine = args[2] .. ' ' .. string.format('%.0f', now + tonumber(args[3]))
  local most, answers = tonumber(args[4]), {}
  for queue = 5, #args, 2 do
    local members, taken, skipped, more, min = {}, {}, 0, 0, args[queue]
    repeat
      local some = redis.call('ZRANGEBYLEX', keys[1], min, args[queue + 1], 'LIMIT', 0, math.min(most + 1, 1000))
      local held = {}
      if #some > 0 then
        local ids = {}
        for i = 1, #some do
          ids[i] = some[i]:sub(-16)
        end
        held = redis.call('HMGET', keys[2], unpack(ids))
        min = '(' .. some[#some]
      end
      for i = 1, #some do
        local who, till = string.match(held[i] or '', '^(%S+) (%d+)$')
        if who and who ~= args[2] and tonumber(till) > now then
          skipped = 1
        elseif #members == most then
          more = 1
          break
        else
          members[#members + 1] = some[i]
          taken[#taken + 1] = some[i]:sub(-16)
          taken[#taken + 1] = mine
        end
      end
    until more == 1 or #some == 0
    for i = 1, #taken, 1000 do
      redis.call('HSET', keys[2], unpack(taken, i, math.min(i + 999, #taken)))
    end
    if #taken > 0 then
      redis.call('PEXPIRE', keys[2], 60000)
    end
    answers[#answers + 1] = { members, rows_of(args[1], members, 't', 1, 0, -16), skipped, more }
  end
  return answers
end
