-- Writes what plans leave, if everything that they read is still as they read it. Nothing is written before all of it is
-- checked, since nothing is taken back.
-- keys: meta, index, counts, reservations, then the rows and lists that args speak of, in their order
-- args: tag, the time in microseconds from which the plans no longer hold (0: never), channel and message for the wakes,
--   then parts, each with the number of its items first:
--   rows read:      version, "" if absent                              (a key each)
--   ranges read:    min, max, limit, members
--   trims read:     category, text
--   sets cleared:   min and max of the rows, min and max of their places
--   rows gone:      nothing                                            (a key each)
--   rows put:       value                                              (a key each)
--   rows to expire: time in milliseconds                               (a key each)
--   members gone:   member
--   members put:    member
--   counts:         field, difference
--   fields of meta: field, value
--   events:         "append", category, stream, number, time, position or "", body; or "trim", category, stream, number
--                                                                      (a key each)
--   reservations:   id
-- answers: "ok", "first" if nothing was ever written before, or what has changed
-- A command on as many things as fit into one call, of which two may belong together.
local function in_parts(command, list, key)
  for i = 1, #list, 1000 do
    local last = math.min(i + 999, #list)
    if key then
      redis.call(command, key, unpack(list, i, last))
    else
      redis.call(command, unpack(list, i, last))
    end
  end
end

local function clear(index, tag, min, max, places_min, places_max)
  local members = redis.call('ZRANGEBYLEX', index, min, max)
  for i = 1, #members do
    redis.call('DEL', tag .. members[i])
  end
  in_parts('ZREM', members, index)
  in_parts('ZREM', redis.call('ZRANGEBYLEX', index, places_min, places_max), index)
end

-- The place of an event in the log of its category.
local function log_member(category, position, stream, number)
  return 'G' .. category .. '\0' .. position .. '\0' .. stream .. '\0' .. number
end

-- Notes that events up to a position are gone, as long as no later time removes more.
local function note_trim(meta, category, position)
  local count, kept = 0, {}
  for number, at in string.gmatch(redis.call('HGET', meta, 'trims:' .. category) or '', '(%d+) (%x+)\n') do
    count = tonumber(number)
    if at > position then
      kept[#kept + 1] = number .. ' ' .. at .. '\n'
    end
  end
  kept[#kept + 1] = string.format('%.0f', count + 1) .. ' ' .. position .. '\n'
  redis.call('HSET', meta, 'trims:' .. category, table.concat(kept))
end

local function trim(meta, index, list, category, stream, up_to)
  local first = redis.call('LINDEX', list, 0)
  local count = first and math.min(up_to - number_of(first) + 1, redis.call('LLEN', list)) or 0
  if count < 1 then
    return
  end
  local last
  for from = 0, count - 1, 1000 do
    local gone = {}
    for _, event in ipairs(redis.call('LRANGE', list, from, math.min(from + 999, count - 1))) do
      local number, position = string.match(event, '^(%d+) %-?%d+ (%x+)\n')
      gone[#gone + 1] = log_member(category, position, stream, number)
      last = position
    end
    redis.call('ZREM', index, unpack(gone))
  end
  redis.call('LTRIM', list, count, -1)
  note_trim(meta, category, last)
end

local function commit(keys, args)
  local meta, index, counts, reservations = keys[1], keys[2], keys[3], keys[4]
  local tag, key, arg = args[1], 4, 4
  local function next_key()
    key = key + 1
    return keys[key]
  end
  local function next_arg()
    arg = arg + 1
    return args[arg]
  end
  local function items()
    return tonumber(next_arg())
  end

  local time = redis.call('TIME')
  local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
  local limit = tonumber(args[2])
  if limit > 0 and now >= limit then
    return 'time'
  end
  for _ = 1, items() do
    if redis.call('GETRANGE', next_key(), 0, 15) ~= next_arg() then
      return 'row'
    end
  end
  for _ = 1, items() do
    local members = redis.call('ZRANGEBYLEX', index, next_arg(), next_arg(), 'LIMIT', 0, next_arg())
    if table.concat(members) ~= next_arg() then
      return 'range'
    end
  end
  for _ = 1, items() do
    if (redis.call('HGET', meta, 'trims:' .. next_arg()) or '') ~= next_arg() then
      return 'trims'
    end
  end

  local known = redis.call('HMGET', meta, 'version', 'time', 'high', 'low')
  local last = math.max((tonumber(known[1]) or 0) + 1, now)
  local version = string.format('%016x', last)
  redis.call('HSET', meta, 'version', string.format('%.0f', last))
  if now > (tonumber(known[2]) or 0) then
    redis.call('HSET', meta, 'time', string.format('%.0f', now))
  end

  for _ = 1, items() do
    clear(index, tag, next_arg(), next_arg(), next_arg(), next_arg())
  end
  local gone, put = {}, {}
  for i = 1, items() do
    gone[i] = next_key()
  end
  in_parts('DEL', gone)
  for i = 1, items() do
    put[2 * i - 1], put[2 * i] = next_key(), version .. next_arg()
  end
  in_parts('MSET', put)
  for _ = 1, items() do
    redis.call('PEXPIREAT', next_key(), next_arg())
  end
  gone, put = {}, {}
  for i = 1, items() do
    gone[i] = next_arg()
  end
  in_parts('ZREM', gone, index)
  for i = 1, items() do
    put[2 * i - 1], put[2 * i] = 0, next_arg()
  end
  for _ = 1, items() do
    local field = next_arg()
    if redis.call('HINCRBY', counts, field, next_arg()) == 0 then
      redis.call('HDEL', counts, field)
    end
  end
  for _ = 1, items() do
    redis.call('HSET', meta, next_arg(), next_arg())
  end

  -- Positions count up to 2^64, further than a number of Lua, so they are kept in two halves.
  local high, low, appended = tonumber(known[3]) or 0, tonumber(known[4]) or 0, false
  for _ = 1, items() do
    local list, what, category, stream, number = next_key(), next_arg(), next_arg(), next_arg(), next_arg()
    if what == 'trim' then
      in_parts('ZADD', put, index)
      put = {}
      trim(meta, index, list, category, stream, tonumber(number))
    else
      local at, position, body = next_arg(), next_arg(), next_arg()
      if position == '' then
        low, appended = low + 1, true
        if low == 4294967296 then
          high, low = high + 1, 0
        end
        position = string.format('%08x%08x', high, low)
      end
      redis.call('RPUSH', list, number .. ' ' .. at .. ' ' .. position .. '\n' .. body)
      put[#put + 1] = 0
      put[#put + 1] = log_member(category, position, stream, number)
    end
  end
  in_parts('ZADD', put, index)
  if appended then
    redis.call('HSET', meta, 'high', string.format('%.0f', high), 'low', string.format('%.0f', low))
  end

  gone = {}
  for i = 1, items() do
    gone[i] = next_arg()
  end
  in_parts('HDEL', gone, reservations)
  if args[4] ~= '' then
    redis.call('PUBLISH', args[3], args[4])
  end
  return known[1] and 'ok' or 'first'
end
