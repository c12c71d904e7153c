-- Writes what plans leave, if everything that they read is still as they read it. Nothing is written before all of it is
-- checked, since nothing is taken back. Arguments stay text wherever they can: a number costs more to pass on.
-- keys: meta, index, counts, reservations, then those of the parts, in their order
-- args: tag, the time in microseconds from which the plans no longer hold (0: never), the time that they went by, "1" if
--   that was a guess, channel and message for the wakes, the channel of the caller alone or "", the version of what is
--   written, then parts, each with the number of its items first:
--   rows:           how many were read, how many of those, the first ones, are put, how many more are put; then the versions
--                   of those read, "" if absent, then of each that is put: value, time in milliseconds to expire or ""
--                                                                      (a key each)
--   ranges read:    min, max, limit, members
--   trims read:     category, text
--   sets cleared:   min and max of the rows, min and max of their places
--   rows gone:      nothing                                            (a key each)
--   members gone:   member
--   members put:    member
--   counts:         field, difference
--   fields of meta: field, value
--   events:         category, number and time, how its place ends, position or "", body; for a prefix that goes, category,
--                   "", stream, number, ""                             (a key each)
--   reservations:   id
-- answers: "ok", "first" if nothing was ever written before, or what has changed; and the time
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

local function commit(keys, args)
  local call, meta, index, counts, reservations = redis.call, keys[1], keys[2], keys[3], keys[4]
  local tag, version, key, arg = args[1], args[8], 4, 8
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
  local function list()
    local from, count = arg + 2, items()
    arg = arg + count
    return from, from + count - 1
  end

  local time, known = call('TIME'), call('HMGET', meta, 'time', 'high', 'low')
  local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
  local limit, asked, last = tonumber(args[2]), tonumber(args[3]), tonumber(known[1] or 0)
  if (limit > 0 and now >= limit) or (args[4] == '1' and (asked > now or asked + 1000000 < last)) then
    return { 'time', now }
  end
  local read, replaced, added = items(), items(), items()
  for i = 1, read do
    if call('GETRANGE', keys[key + i], '0', '15') ~= args[arg + i] then
      return { 'row', now }
    end
  end
  local rows, values = key, arg + read
  local afresh = rows + read - replaced
  key, arg = rows + read + added, values + 2 * (replaced + added)
  for _ = 1, items() do
    local members = call('ZRANGEBYLEX', index, next_arg(), next_arg(), 'LIMIT', '0', next_arg())
    if table.concat(members) ~= next_arg() then
      return { 'range', now }
    end
  end
  for _ = 1, items() do
    if (call('HGET', meta, 'trims:' .. next_arg()) or '') ~= next_arg() then
      return { 'trims', now }
    end
  end

  for _ = 1, items() do
    clear(index, tag, next_arg(), next_arg(), next_arg(), next_arg())
  end
  local gone, put, count, log, places = {}, {}, 0, {}, 0
  for i = 1, items() do
    gone[i] = next_key()
  end
  in_parts('DEL', gone)
  for i = 1, replaced + added do
    local name = keys[(i > replaced and afresh or rows) + i]
    local value, expiry = version .. args[values + 2 * i - 1], args[values + 2 * i]
    if expiry == '' then
      put[count + 1] = name
      put[count + 2] = value
      count = count + 2
    else
      call('SET', name, value, 'PXAT', expiry)
    end
  end
  in_parts('MSET', put)
  local from, to = list()
  for i = from, to, 1000 do
    call('ZREM', index, unpack(args, i, math.min(i + 999, to)))
  end
  from, to = list()
  for i = from, to do
    log[places + 1] = '0'
    log[places + 2] = args[i]
    places = places + 2
  end
  for _ = 1, items() do
    local field = next_arg()
    if call('HINCRBY', counts, field, next_arg()) == 0 then
      call('HDEL', counts, field)
    end
  end
  for _ = 1, items() do
    call('HSET', meta, next_arg(), next_arg())
  end

  -- Positions count up to 2^64, further than a number of Lua, so they are kept in two halves.
  local high, low, appended = tonumber(known[2]) or 0, tonumber(known[3]) or 0, false
  local first, events, list_of_events = string.format('%08x', high), {}, nil
  local function push()
    in_parts('RPUSH', events, list_of_events)
    events = {}
  end
  for _ = 1, items() do
    local name, category, head, ending, position, body =
      next_key(), next_arg(), next_arg(), next_arg(), next_arg(), next_arg()
    if name ~= list_of_events or head == '' then
      push()
      list_of_events = name
    end
    if head == '' then
      in_parts('ZADD', log, index)
      log, places = {}, 0
      trim(meta, index, name, category, ending, tonumber(position))
    else
      if position == '' then
        low, appended = low + 1, true
        if low == 4294967296 then
          high, low = high + 1, 0
          first = string.format('%08x', high)
        end
        position = first .. string.format('%08x', low)
      end
      events[#events + 1] = head .. position .. '\n' .. body
      log[places + 1] = '0'
      log[places + 2] = log_member(category, position, ending)
      places = places + 2
    end
  end
  push()
  in_parts('ZADD', log, index)
  local fresh = asked > last and args[3] or known[1]
  if appended then
    call('HSET', meta, 'time', fresh, 'high', string.format('%.0f', high), 'low', string.format('%.0f', low))
  elseif fresh ~= known[1] then
    call('HSET', meta, 'time', fresh)
  end

  from, to = list()
  for i = from, to, 1000 do
    call('HDEL', reservations, unpack(args, i, math.min(i + 999, to)))
  end
  if args[6] ~= '' and not is_alone(args[5], args[7]) then
    call('PUBLISH', args[5], args[6])
  end
  return { known[1] and 'ok' or 'first', now }
end
