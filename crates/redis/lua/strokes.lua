-- How a call leaves word that it was done, and how one whose answer was lost is kept from being done later. The caller says
-- of a call, in one argument: its version, the time in microseconds from which it is not to be done, for how many seconds to
-- keep what it leaves (0: that is said already), and the field to leave it in.
local STROKE = '>c16I8I4I4'

-- The last time and the last position of a namespace, in one string. Positions count up to 2^64, further than a number of
-- Lua, so they are kept in two halves. After them, mostly for a moment and mostly none, those of calls that are not to be done,
-- 24 bytes each: the version, and the time from which it is too late for them anyway.
local LAST, LAST_LENGTH, GIVEN_UP = '>I8I4I4', 16, 24

-- Whether a call is not to be done any more.
local function is_given_up(version, late, known, now)
  if now >= late then
    return true
  end
  for i = LAST_LENGTH + 1, known and #known or 0, GIVEN_UP do
    if string.sub(known, i, i + 15) == version then
      return true
    end
  end
  return false
end

-- Those that are still to be kept from being done.
local function given_up(known, now)
  local kept = ''
  for i = LAST_LENGTH + 1, #known, GIVEN_UP do
    if struct.unpack('>I8', known, i + 16) > now then
      kept = kept .. string.sub(known, i, i + GIVEN_UP - 1)
    end
  end
  return kept
end

-- Leaves word of a call: its version, maybe with something that its caller will want to know.
local function leave_word(key, field, word, seconds)
  redis.call('HSET', key, field, word)
  if seconds > 0 then
    redis.call('EXPIRE', key, seconds)
  end
end

-- What became of a call whose answer was lost: if it was not done, it never will be.
-- keys: last, where the caller leaves word
-- args: the stroke
-- answers: what the call left; nothing if it was not done
local function fate(keys, args)
  local version, late, _, field = struct.unpack(STROKE, args[1])
  local left = redis.call('HGET', keys[2], field)
  if left and string.sub(left, 1, 16) == version then
    return left
  end
  local time, known = redis.call('TIME'), redis.call('GET', keys[1]) or struct.pack(LAST, 0, 0, 0)
  local kept = given_up(known, time[1] * 1000000 + time[2])
  redis.call('SET', keys[1], string.sub(known, 1, LAST_LENGTH) .. kept .. version .. struct.pack('>I8', late))
  return false
end
