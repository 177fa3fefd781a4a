"""The scripts that run inside the server. Each is atomic: nobody sees a half of it, nor comes in between.

They decide nothing. `LOOK` says how things stand, the client decides by `rules`, and `CHANGE` applies
what it decided if the session's version is still the one that it saw: compare and set. A version is a random token, so
that no later state is ever taken for an earlier one. `PUT_BLOB` and `DROP_BLOB` keep a blob and its age together.
"""

LOOK = """
-- KEYS: meta, log, batches, inbox, attempts. ARGV: the mark of a batch, how that stands in a line, an entry's field.
local time = redis.call('TIME')
local lines = {}
if ARGV[1] ~= '' then
  local span = redis.call('HGET', KEYS[3], ARGV[1])
  if ARGV[2] == '' then
    for _, attempt in ipairs(redis.call('ZRANGE', KEYS[5], 0, -1)) do
      if string.sub(attempt, 1, #ARGV[1] + 1) == ARGV[1] .. ' ' then span = string.sub(attempt, #ARGV[1] + 2) end
    end
  end
  if span then
    local first, last = string.match(span, '^(%d+) (%d+)$')
    for _, line in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], first, last)) do
      -- A line that was put in its place since does not carry the batch in its head.
      if ARGV[2] == '' or string.find(string.sub(line, 1, 256 + #ARGV[2]), ARGV[2], 1, true) then
        lines[#lines + 1] = line
      end
    end
  end
end
local entry = ''
if ARGV[3] ~= '' then entry = redis.call('HGET', KEYS[4], ARGV[3]) or '' end
return {time[1], time[2], redis.call('HGETALL', KEYS[1]), lines, entry}
"""

CHANGE = """
-- KEYS: as `SessionKeys.all`. ARGV: the version that was seen, a mark that must be new (or ''), the
-- version after (or '' where it stays), then commands: name, number of the key, number of arguments, arguments.
local time = redis.call('TIME')
if (redis.call('HGET', KEYS[1], 'version') or '') ~= ARGV[1] then return {0, time[1], time[2]} end
if ARGV[2] ~= '' and redis.call('HEXISTS', KEYS[3], ARGV[2]) == 1 then return {0, time[1], time[2]} end
local at = 4
while at <= #ARGV do
  local name, key, count = ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  if name == 'FORGET-SCOPE' then
    if redis.call('ZCARD', KEYS[7]) == 0 then redis.call('SREM', KEYS[8], ARGV[at + 3]) end
  elseif key == 0 then
    redis.call(name, unpack(ARGV, at + 3, at + 2 + count))
  else
    redis.call(name, KEYS[key], unpack(ARGV, at + 3, at + 2 + count))
  end
  at = at + 3 + count
end
if ARGV[3] ~= '' then redis.call('HSET', KEYS[1], 'version', ARGV[3]) end
return {1, time[1], time[2]}
"""

PUT_BLOB = """
-- KEYS: the blob, the scope's blobs by age, the scopes. ARGV: its bytes, its digest, now, the scope.
redis.call('SET', KEYS[1], ARGV[1])
redis.call('ZADD', KEYS[2], ARGV[3], ARGV[2])
redis.call('SADD', KEYS[3], ARGV[4])
return 1
"""

DROP_BLOB = """
-- KEYS: as for PUT_BLOB. ARGV: its digest, a time before which it was put (or ''), the scope.
local at = redis.call('ZSCORE', KEYS[2], ARGV[1])
if ARGV[2] ~= '' and at and tonumber(at) >= tonumber(ARGV[2]) then return 0 end
local gone = redis.call('UNLINK', KEYS[1])
redis.call('ZREM', KEYS[2], ARGV[1])
if redis.call('ZCARD', KEYS[2]) == 0 then redis.call('SREM', KEYS[3], ARGV[3]) end
return gone
"""
