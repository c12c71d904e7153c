-- A part of the index, and the rows that its members lead to.
-- keys: index
-- args: tag, min, max, limit, "1" to go backwards, then the row's key: letter, first, last, rest
-- answers: members, rows
-- A row's key is tag .. letter .. member:sub(first, last) .. member:sub(rest); without a letter there are no rows.
local function rows_of(tag, members, letter, first, last, rest)
  local rows, names = {}, {}
  for i = 1, #members do
    names[#names + 1] = tag .. letter .. members[i]:sub(first, last) .. members[i]:sub(rest)
    if #names == 1000 or i == #members then
      local found = redis.call('MGET', unpack(names))
      for j = 1, #names do
        rows[#rows + 1] = found[j]
      end
      names = {}
    end
  end
  return rows
end

local function range(keys, args)
  local members
  if args[5] == '1' then
    members = redis.call('ZREVRANGEBYLEX', keys[1], args[3], args[2], 'LIMIT', 0, args[4])
  else
    members = redis.call('ZRANGEBYLEX', keys[1], args[2], args[3], 'LIMIT', 0, args[4])
  end
  if not args[6] then
    return { members, {} }
  end
  local first, last, rest = tonumber(args[7]), tonumber(args[8]), tonumber(args[9])
  return { members, rows_of(args[1], members, args[6], first, last, rest) }
end
