-- Writes what plans leave, if everything that they read is still as they read it. Nothing is written before all of it is
-- checked, since nothing is taken back. Arguments are laid out as commands take them, so that most are passed on as they are:
-- what is made anew here costs more than what it is for.
-- keys: last, index, where the caller leaves word if it does
-- args: the stroke or "", tag, channel and message for the wakes, the channel of the caller alone or "", numbers as in HEAD, then the parts:
--   rows absent:    key
--   rows read:      key, version
--   ranges read:    min, max, limit, members
--   trims read:     category, text
--   sets cleared:   min and max of the rows, min and max of their places
--   rows gone:      key
--   rows put:       key, value with its version; at last the key of the last time and position, whose value is made here
--   rows that expire: key, value with its version, time in milliseconds
--   members gone:   member
--   counts:         field, difference
--   fields of meta: field, value
--   events:         list, how its place begins and ends: the position stands between; the event without its position
--   events with a position: list, place, event
--   prefixes that go: list, category, stream, number
--   reservations:   id
--   members put:    "0", member
-- answers, in one text: "ok", "first" if nothing was ever written before, or what has changed; "1" if nobody but the caller
--   listens to wakes; seconds and microseconds of the time
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

local function next_position(high, low)
  if low == 4294967295 then
    return high + 1, 0
  end
  return high, low + 1
end

-- Adds events to a list.
local function push(list, events, count)
  if count == 1 then
    redis.call('RPUSH', list, events[1])
  elseif count > 1 then
    in_parts('RPUSH', events, list)
  end
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

-- Whether nobody listens to the channel of all but the caller, who listens to one of its own too. It is looked at once a second:
-- whoever begins to listen sees to it that it is looked at anew.
local listeners, looked_in = {}, ''
local function is_alone(all, own, second)
  if own == '' then
    return false
  end
  if looked_in ~= second then
    listeners, looked_in = {}, second
  end
  if listeners[own] == nil then
    local counts = redis.pcall('PUBSUB', 'NUMSUB', all, own)
    listeners[own] = not counts.err and counts[2] <= counts[4]
  end
  return listeners[own]
end

-- Someone has begun to listen.
local function listen()
  looked_in = ''
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
      local position, number = string.match(event, '^(%x+) (%d+) ')
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

-- The time in microseconds from which the plans no longer hold (0: never), the time that they went by, 1 if that was a
-- guess, the position above which to go on in two halves, and how many items each of the parts has but the last.
local HEAD = '>I8I8BI4I4I4I4I4I4I4I4I4I4I4I4I4I4I4I4I4'
local FIRST_PART = 7

local function commit(keys, args)
  local call, last_key, index, stroke, tag = redis.call, keys[1], keys[2], args[1], args[2]
  local limit, asked, guessed, high_least, low_least, absent, read, ranges, trims, cleared, gone, put, expiring, members_gone,
    counted, fields, events, placed, trimmed, reserved = struct.unpack(HEAD, args[6])

  local time, known = call('TIME'), call('GET', last_key)
  local now, last, high, low = time[1] * 1000000 + time[2], 0, 0, 0
  if known then
    last, high, low = struct.unpack(LAST, known)
  end
  local function answer(word, alone)
    return word .. ' ' .. alone .. ' ' .. time[1] .. ' ' .. time[2]
  end

  if (limit > 0 and now >= limit) or (guessed == 1 and (asked > now or asked + 1000000 < last)) then
    return answer('time', '0')
  end
  local version, late, kept, field
  if stroke ~= '' then
    version, late, kept, field = struct.unpack(STROKE, stroke)
    if is_given_up(version, late, known, now) then
      return answer('late', '0')
    end
  end
  local at = FIRST_PART
  for i = at, at + absent - 1, 1000 do
    if call('EXISTS', unpack(args, i, math.min(i + 999, at + absent - 1))) > 0 then
      return answer('row', '0')
    end
  end
  at = at + absent
  for _ = 1, read do
    if call('GETRANGE', args[at], '-16', '-1') ~= args[at + 1] then
      return answer('row', '0')
    end
    at = at + 2
  end
  for _ = 1, ranges do
    if table.concat(call('ZRANGEBYLEX', index, args[at], args[at + 1], 'LIMIT', '0', args[at + 2])) ~= args[at + 3] then
      return answer('range', '0')
    end
    at = at + 4
  end
  for _ = 1, trims do
    if (call('HGET', tag .. 'M', 'trims:' .. args[at]) or '') ~= args[at + 1] then
      return answer('trims', '0')
    end
    at = at + 2
  end

  for _ = 1, cleared do
    clear(index, tag, args[at], args[at + 1], args[at + 2], args[at + 3])
    at = at + 4
  end
  pass_on('DEL', args, at, at + gone - 1)
  at = at + gone
  local rows = at
  at = at + 2 * put
  for _ = 1, expiring do
    call('SET', args[at], args[at + 1], 'PXAT', args[at + 2])
    at = at + 3
  end
  pass_on('ZREM', args, at, at + members_gone - 1, index)
  at = at + members_gone
  for _ = 1, counted do
    if call('HINCRBY', tag .. 'N', args[at], args[at + 1]) == 0 then
      call('HDEL', tag .. 'N', args[at])
    end
    at = at + 2
  end
  for _ = 1, fields do
    call('HSET', tag .. 'M', args[at], args[at + 1])
    at = at + 2
  end

  -- The members to put are the last arguments; the places of events are added to them, so that all are put together.
  local members, places = at + 4 * events + 3 * placed + 4 * trimmed + reserved, #args
  if events > 0 then
    local list, some, count = nil, {}, 0
    for _ = 1, events do
      high, low = next_position(high, low)
      local position, name = string.format('%08x%08x', high, low), args[at]
      if list ~= name then
        push(list, some, count)
        list, some, count = name, count > 1 and {} or some, 0
      end
      count = count + 1
      some[count] = position .. args[at + 3]
      args[places + 1] = '0'
      args[places + 2] = args[at + 1] .. position .. args[at + 2]
      places = places + 2
      at = at + 4
    end
    push(list, some, count)
  elseif high_least > high or (high_least == high and low_least > low) then
    high, low = high_least, low_least
  end
  pass_on('ZADD', args, members, places, index)
  local fresh = struct.pack(LAST, math.max(asked, last), high, low)
  if known and #known > LAST_LENGTH then
    fresh = fresh .. given_up(known, now)
  end
  args[rows + 2 * put - 1] = fresh
  pass_on('MSET', args, rows, rows + 2 * put - 1)
  if version then
    leave_word(keys[3], field, version, kept)
  end
  for _ = 1, placed do
    call('ZADD', index, '0', args[at + 1])
    call('RPUSH', args[at], args[at + 2])
    at = at + 3
  end
  for _ = 1, trimmed do
    trim(tag .. 'M', index, args[at], args[at + 1], args[at + 2], tonumber(args[at + 3]))
    at = at + 4
  end
  pass_on('HDEL', args, at, at + reserved - 1, tag .. 'R')
  local alone = args[4] ~= '' and is_alone(args[3], args[5], time[1])
  if args[4] ~= '' and not alone then
    call('PUBLISH', args[3], args[4])
  end
  return answer(last > 0 and 'ok' or 'first', alone and '1' or '0')
end
