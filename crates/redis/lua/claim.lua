-- Starts the first ready tasks of queues, for several claims one after the other. It decides nothing but who comes first:
-- what is due is handled before, and what is more than a plain start is planned.
-- keys: last, index, where the caller leaves word if it does
-- args: the stroke or "", tag, the time in microseconds or "" for the server's, microseconds to add to that, channel for the wakes, the channel
--   of the caller alone or "", how the message begins, the version of what is written, who claims (as in reservations), then
--   how many queues, each with: name, its row while it is not paused
--   how many claims, each with: owner, the owner as JSON, how many at most, lease in microseconds or "", key or "", up to
--     when what is due was handled in microseconds or "", how many queues, their numbers
-- answers: nothing if it is not to be done any more; the server's time, the time, and for each claim one of
--   "got" and the rows, in order, as they were before the start
--   "none" and the first timer and lease of each queue that are to come, as in the index
--   "due": something in these queues is
--   "plan": a queue is paused, an earlier claim with the key holds something, another process is about to take what is first,
--     or one of the tasks is more than a plain start
-- A row ends with its version. If a plain start is all it takes, it begins with "Rattempt number timeout expiry\n": how often
-- it was started, the number of its last event, and two times in microseconds or "-". A start adds three lines at the end, the
-- owner, the key, and "time lease" with an "S" after it, and the new version. Whoever reads it works out the rest. Bodies are
-- not passed through here again: every byte of a string costs something in Lua.
local READY, TIMER, LEASE = 'R', 'T', 'L'
-- What stands before the version of a row that was started: the byte of an S.
local STARTED = 83

-- A time as it stands in the index.
local function stamp(time)
  return '\128' .. string.sub(struct.pack('>I8', time), 2)
end

-- The first members of a part of the index.
local function first_of(index, start, finish, limit)
  return redis.call('ZRANGEBYLEX', index, '[' .. start, '(' .. finish, 'LIMIT', '0', limit)
end

-- Priority, time and id of a ready task as numbers: bytes would compare by the server's locale.
local function place_of(task)
  task.place = task.place or { struct.unpack('>I2I4I4I4I4I4I4', string.sub(task.member, -26)) }
  return task.place
end

-- Whether a ready task comes before another.
local function is_before(one, two)
  one, two = place_of(one), place_of(two)
  for i = 1, 7 do
    if one[i] ~= two[i] then
      return one[i] < two[i]
    end
  end
  return false
end

-- Whether another process is about to take a task.
local function is_reserved(reservations, id, me, now)
  local who, till = string.match(redis.call('HGET', reservations, id) or '', '^(%S+) (%d+)$')
  return who and who ~= me and tonumber(till) * 1000 > now
end

local function claim(keys, args)
  local call, last_key, index, stroke, tag = redis.call, keys[1], keys[2], args[1], args[2]
  local counts, reservations, version, me, arg = tag .. 'N', tag .. 'R', args[8], args[9], 9
  local function next_arg()
    arg = arg + 1
    return args[arg]
  end

  local time, known = call('TIME'), call('GET', last_key)
  local server, asked, high, low = time[1] * 1000000 + time[2], 0, 0, 0
  if known then
    asked, high, low = struct.unpack(LAST, known)
  end
  if asked < server then
    asked = server
  end
  local word, late, kept, field
  if stroke ~= '' then
    word, late, kept, field = struct.unpack(STROKE, stroke)
    if is_given_up(word, late, known, server) then
      return false
    end
  end
  local now = args[3] ~= '' and tonumber(args[3]) or asked + tonumber(args[4])
  local now_text, soon = string.format('%.0f', now), stamp(now + 1)
  local crowded = call('EXISTS', reservations) == 1

  local queues, claims, keyed = {}, {}, {}
  for i = 1, tonumber(next_arg()) do
    local name = next_arg()
    local row, open = call('GET', tag .. 'q' .. name), next_arg()
    queues[i] = { name = name, start = name .. '\0', from = READY .. name .. '\0', wanted = 0, tasks = {}, next = 1, taken = 0 }
    queues[i].paused = row and string.sub(row, 1, -17) ~= open
  end
  for i = 1, tonumber(next_arg()) do
    local one = { owner = next_arg(), json = next_arg(), limit = tonumber(next_arg()) }
    one.lease, one.key, one.handled, one.queues = next_arg(), next_arg(), next_arg(), {}
    one.line = '\n' .. one.owner .. '\n' .. one.key .. '\n' .. now_text .. ' ' .. one.lease .. 'S' .. version
    one.event_after_number = ' ' .. now_text .. '\ntask.started\n\n{"attempt":'
    one.event_end = ',"owner":' .. one.json .. '}'
    if one.lease ~= '' then
      one.over = now + tonumber(one.lease)
      one.over_stamp = stamp(one.over)
    end
    one.from = one.handled ~= '' and stamp(tonumber(one.handled) + 1) or ''
    for place = 1, tonumber(next_arg()) do
      local queue = queues[tonumber(next_arg())]
      queue.wanted = queue.wanted + one.limit
      one.queues[place] = queue
    end
    claims[i] = one
  end
  -- Whether a timer or a lease of a queue has come since a time.
  local function is_due(queue, from)
    local timer, lease = TIMER .. queue.start, LEASE .. queue.start
    return #first_of(index, timer .. from, timer .. soon, '1') > 0 or #first_of(index, lease .. from, lease .. soon, '1') > 0
  end
  for _, queue in ipairs(queues) do
    queue.due = is_due(queue, '')
  end

  -- What a start needs to know of a ready task; nothing if it has expired.
  local function look_at(queue, member, row)
    local id = string.sub(member, -16)
    local attempt, number, timeout, expiry = string.match(row or '', '^R(%d+) (%d+) (%S+) (%S+)\n')
    if not attempt or string.byte(row, -17) == STARTED or (crowded and is_reserved(reservations, id, me, server)) then
      return { member = member }
    elseif expiry == '-' or tonumber(expiry) > now then
      return {
        queue = queue, member = member, id = id, name = tag .. 't' .. id, row = row, plain = true,
        attempt = tonumber(attempt) + 1, number = tonumber(number) + 1, timeout = tonumber(timeout), expiry = tonumber(expiry),
      }
    end
  end

  -- The ready task of a queue that is so many after the next one, if there is one. Tasks are read as many as are wanted.
  local function ready(queue, beyond)
    local tasks = queue.tasks
    while not tasks[queue.next + beyond] and not queue.complete do
      local members = first_of(index, queue.from, READY .. queue.name .. '\1', queue.wanted)
      queue.complete = #members < queue.wanted
      local names = {}
      for i, member in ipairs(members) do
        names[i] = tag .. 't' .. string.sub(member, -16)
      end
      local rows = #names > 0 and call('MGET', unpack(names)) or {}
      for i, member in ipairs(members) do
        tasks[#tasks + 1] = look_at(queue, member, rows[i])
        queue.from = member .. '\0'
      end
    end
    return tasks[queue.next + beyond]
  end

  -- The ready task that comes first in any of some queues, and whose it is.
  local function first_ready(queues, taken)
    local first, of
    for _, queue in ipairs(queues) do
      local task = ready(queue, taken[queue] or 0)
      if task and (not first or is_before(task, first)) then
        first, of = task, queue
      end
    end
    return first, of
  end

  -- The tasks that a claim gets; or why it gets none.
  local function choose(one)
    for _, queue in ipairs(one.queues) do
      if queue.paused then
        return nil, 'plan'
      elseif queue.due and (one.from == '' or is_due(queue, one.from)) then
        return nil, 'due'
      end
    end
    local held = one.key ~= '' and 'A' .. one.owner .. '\0' .. one.key
    if held and (keyed[held] or #first_of(index, held .. '\0', held .. '\1', '1') > 0) then
      return nil, 'plan'
    end
    local found, taken = {}, {}
    for i = 1, one.limit do
      local task, queue = first_ready(one.queues, taken)
      if not task then
        break
      elseif not task.plain then
        return nil, 'plan'
      end
      found[i], taken[queue] = task, (taken[queue] or 0) + 1
    end
    if #found == 0 then
      return nil, 'none'
    end
    for queue, count in pairs(taken) do
      queue.next, queue.taken = queue.next + count, queue.taken + count
    end
    if held then
      keyed[held] = true
    end
    return found
  end

  -- From here on nothing can go wrong: what is chosen is written.
  local gone, places, started, answers = {}, {}, {}, {}
  local function place(member)
    places[#places + 1] = '0'
    places[#places + 1] = member
  end
  local function start(one, task)
    local queue, id, finish = task.queue, task.id, task.timeout and now + task.timeout
    gone[#gone + 1] = task.member
    if task.expiry then
      gone[#gone + 1] = TIMER .. queue.start .. stamp(task.expiry) .. id
    end
    if finish then
      place(TIMER .. queue.start .. stamp(finish) .. id)
    end
    if one.over then
      place(LEASE .. queue.start .. (finish and finish < one.over and stamp(finish) or one.over_stamp) .. id)
    end
    if one.key ~= '' then
      place('A' .. one.owner .. '\0' .. one.key .. '\0' .. id)
    end
    high, low = next_position(high, low)
    local position = string.format('%08x%08x', high, low)
    local stream = string.format('task/%08x-%04x-%04x-%04x-%04x%08x', struct.unpack('>I4I2I2I2I2I4', id))
    place(log_member('task', position, '\0' .. stream .. '\0' .. task.number))
    call('RPUSH', tag .. 'E' .. stream, position .. ' ' .. task.number .. one.event_after_number .. task.attempt
      .. one.event_end)
    call('APPEND', task.name, one.line)
    started[#started + 1] = id
  end

  local chosen = {}
  for i, one in ipairs(claims) do
    local found, why = choose(one)
    chosen[i] = found or why
  end
  for i, one in ipairs(claims) do
    local answer = { 'got' }
    if type(chosen[i]) == 'table' then
      for _, task in ipairs(chosen[i]) do
        start(one, task)
        answer[#answer + 1] = task.row
      end
    else
      answer[1] = chosen[i]
      for _, queue in ipairs(chosen[i] == 'none' and one.queues or {}) do
        for _, letter in ipairs { TIMER, LEASE } do
          local first = first_of(index, letter .. queue.start .. one.from, letter .. queue.name .. '\1', '1')[1]
          answer[#answer + 1] = first and string.sub(first, #queue.start + 2, #queue.start + 9)
        end
      end
    end
    answers[i] = answer
  end
  if #started == 0 then
    return { server, now, answers }
  end

  in_parts('ZREM', gone, index)
  in_parts('ZADD', places, index)
  for _, queue in ipairs(queues) do
    if queue.taken > 0 then
      if call('HINCRBY', counts, queue.start .. 'pending', -queue.taken) == 0 then
        call('HDEL', counts, queue.start .. 'pending')
      end
      call('HINCRBY', counts, queue.start .. 'running', queue.taken)
    end
  end
  local fresh = struct.pack(LAST, asked, high, low)
  if known and #known > LAST_LENGTH then
    fresh = fresh .. given_up(known, server)
  end
  call('SET', last_key, fresh)
  local ids = table.concat(started)
  if word then
    leave_word(keys[3], field, word .. struct.pack('>I8', now) .. ids, kept)
  end
  if not is_alone(args[5], args[6], time[1]) then
    call('PUBLISH', args[5], args[7] .. ids)
  end
  return { server, now, answers }
end
