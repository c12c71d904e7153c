-- Writes what plans leave, if everything that they read is still as they read it. Nothing is written before all of it is
-- checked, since nothing is taken back. Arguments are laid out as commands take them, so that most are passed on as they are:
-- what is made anew here costs more than what it is for.
-- keys: meta, index, counts, reservations
-- args: tag, the time in microseconds from which the plans no longer hold (0: never), the time that they went by, "1" if
--   that was a guess, channel and message for the wakes, the channel of the caller alone or "", how many items each of the
--   parts has (four bytes each), then the parts:
--   rows read:      key, version or "" if absent
--   ranges read:    min, max, limit, members
--   trims read:     category, text
--   sets cleared:   min and max of the rows, min and max of their places
--   rows gone:      key
--   rows put:       key, value with its version
--   rows that expire: key, value with its version, time in milliseconds
--   members gone:   member
--   members put:    "0", member
--   counts:         field, difference
--   fields of meta: field, value
--   events:         list, how its place begins and ends, how it begins and ends: the position stands between
--   events with a position: list, place, event
--   prefixes that go: list, category, stream, number
--   reservations:   id
-- answers: "ok", "first" if nothing was ever written before, or what has changed; the time; and 1 if nobody but the caller
--   listens to wakes
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

-- The place of an event in the log of its category; the end names the stream and the number.
local function log_member(category, position, ending)
  return 'G' .. category .. '\0' .. position .. ending
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

-- Whether nobody listens to the channel of all but the caller, who listens to one of its own too.
local function is_alone(all, own)
  if own == '' then
    return false
  end
  local counts = redis.pcall('PUBSUB', 'NUMSUB', all, own)
  return not counts.err and counts[2] <= counts[4]
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
      gone[#gone + 1] = log_member(category, position, '\0' .. stream .. '\0' .. number)
      last = position
    end
    redis.call('ZREM', index, unpack(gone))
  end
  redis.call('LTRIM', list, count, -1)
  note_trim(meta, category, last)
end

-- A command on a part of the arguments, as many as fit into one call.
local function pass_on(command, args, from, to, key)
  for i = from, to, 1000 do
    local last = math.min(i + 999, to)
    if key then
      redis.call(command, key, unpack(args, i, last))
    else
      redis.call(command, unpack(args, i, last))
    end
  end
end

-- Fifteen numbers.
local PARTS = '>I4I4I4I4I4I4I4I4I4I4I4I4I4I4I4'
local FIRST_PART = 9

local function commit(keys, args)
  local call, meta, index, counts = redis.call, keys[1], keys[2], keys[3]
  local read, ranges, trims, cleared, gone, put, expiring, members_gone, members, counted, fields, events, placed, trimmed,
    reserved = struct.unpack(PARTS, args[8])

  local time, known = call('TIME'), call('HMGET', meta, 'time', 'high', 'low')
  local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
  local limit, asked, last = tonumber(args[2]), tonumber(args[3]), tonumber(known[1] or 0)
  if (limit > 0 and now >= limit) or (args[4] == '1' and (asked > now or asked + 1000000 < last)) then
    return { 'time', now, 0 }
  end
  local at = FIRST_PART
  for _ = 1, read do
    if call('GETRANGE', args[at], '0', '15') ~= args[at + 1] then
      return { 'row', now, 0 }
    end
    at = at + 2
  end
  for _ = 1, ranges do
    if table.concat(call('ZRANGEBYLEX', index, args[at], args[at + 1], 'LIMIT', '0', args[at + 2])) ~= args[at + 3] then
      return { 'range', now, 0 }
    end
    at = at + 4
  end
  for _ = 1, trims do
    if (call('HGET', meta, 'trims:' .. args[at]) or '') ~= args[at + 1] then
      return { 'trims', now, 0 }
    end
    at = at + 2
  end

  for _ = 1, cleared do
    clear(index, args[1], args[at], args[at + 1], args[at + 2], args[at + 3])
    at = at + 4
  end
  pass_on('DEL', args, at, at + gone - 1)
  at = at + gone
  pass_on('MSET', args, at, at + 2 * put - 1)
  at = at + 2 * put
  for _ = 1, expiring do
    call('SET', args[at], args[at + 1], 'PXAT', args[at + 2])
    at = at + 3
  end
  pass_on('ZREM', args, at, at + members_gone - 1, index)
  at = at + members_gone
  pass_on('ZADD', args, at, at + 2 * members - 1, index)
  at = at + 2 * members
  for _ = 1, counted do
    if call('HINCRBY', counts, args[at], args[at + 1]) == 0 then
      call('HDEL', counts, args[at])
    end
    at = at + 2
  end
  for _ = 1, fields do
    call('HSET', meta, args[at], args[at + 1])
    at = at + 2
  end

  local fresh = asked > last and args[3] or known[1]
  if events > 0 then
    -- Positions count up to 2^64, further than a number of Lua, so they are kept in two halves.
    local high, low = tonumber(known[2]) or 0, tonumber(known[3]) or 0
    local first, log, places, list, some, count = string.format('%08x', high), {}, 0, nil, {}, 0
    for _ = 1, events do
      low = low + 1
      if low == 4294967296 then
        high, low = high + 1, 0
        first = string.format('%08x', high)
      end
      local position, name = first .. string.format('%08x', low), args[at]
      if list ~= name then
        if count == 1 then
          call('RPUSH', list, some[1])
        elseif count > 1 then
          in_parts('RPUSH', some, list)
        end
        list, some, count = name, count > 1 and {} or some, 0
      end
      count = count + 1
      some[count] = args[at + 3] .. position .. args[at + 4]
      log[places + 1] = '0'
      log[places + 2] = args[at + 1] .. position .. args[at + 2]
      places = places + 2
      at = at + 5
    end
    if count == 1 then
      call('RPUSH', list, some[1])
    else
      in_parts('RPUSH', some, list)
    end
    in_parts('ZADD', log, index)
    call('HSET', meta, 'time', fresh, 'high', string.format('%.0f', high), 'low', string.format('%.0f', low))
  elseif fresh ~= known[1] then
    call('HSET', meta, 'time', fresh)
  end
  for _ = 1, placed do
    call('ZADD', index, '0', args[at + 1])
    call('RPUSH', args[at], args[at + 2])
    at = at + 3
  end
  for _ = 1, trimmed do
    trim(meta, index, args[at], args[at + 1], args[at + 2], tonumber(args[at + 3]))
    at = at + 4
  end
  pass_on('HDEL', args, at, at + reserved - 1, keys[4])
  local alone = args[6] ~= '' and is_alone(args[5], args[7])
  if args[6] ~= '' and not alone then
    call('PUBLISH', args[5], args[6])
  end
  return { known[1] and 'ok' or 'first', now, alone and 1 or 0 }
end
