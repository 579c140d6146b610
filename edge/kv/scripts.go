package kv

import "github.com/redis/go-redis/v9"

// scripts are what runs inside the Redis. Each names all of its keys, and those
// of one call lie in one slot of a cluster.
type scripts struct {
	take, swap, post, fetch, done *redis.Script
}

func newScripts() scripts {
	return scripts{
		take:  redis.NewScript(takeScript),
		swap:  redis.NewScript(swapScript),
		post:  redis.NewScript(postScript),
		fetch: redis.NewScript(fetchScript),
		done:  redis.NewScript(doneScript),
	}
}

// takeScript takes a token from every bucket or from none, by the time of the
// store. KEYS are the buckets; ARGV has for each the tokens it holds and the
// microseconds in which it fills.
// A bucket is a hash of "tokens" and "last_refill" (microseconds), and lives
// for twice the time in which it fills. It answers with the microseconds to
// wait, the bucket that wants them (from 1; 0 for none), and how many buckets
// held something else, which count as full.
const takeScript = `
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local left, wait, short, corrupt = {}, 0, 0, 0
for i, key in ipairs(KEYS) do
  local full, refill = tonumber(ARGV[2*i-1]), tonumber(ARGV[2*i])
  local have = left[key]
  if have == nil then
    have = full
    local h = redis.pcall('HMGET', key, 'tokens', 'last_refill')
    if h.err then
      corrupt = corrupt + 1
    elseif h[1] or h[2] then
      local n, last = tonumber(h[1] or ''), tonumber(h[2] or '')
      if n == nil or last == nil or n ~= n or last ~= last then
        corrupt = corrupt + 1
      else
        n = math.max(0, math.min(n, full))
        last = math.min(last, now)
        have = math.min(full, n + (now - last) * full / refill)
      end
    end
  end
  if have < 1 - 1e-9 then
    local w = math.max(1, math.ceil((1 - have) * refill / full))
    if w > wait then wait, short = w, i end
  end
  left[key] = have - 1
end
if short > 0 then return {wait, short, corrupt} end
for i, key in ipairs(KEYS) do
  local refill = tonumber(ARGV[2*i])
  local set = {'HSET', key, 'tokens', string.format('%.9f', math.max(0, left[key])), 'last_refill', string.format('%.0f', now)}
  local did = redis.pcall(unpack(set))
  if type(did) == 'table' then
    if string.sub(did.err, 1, 9) ~= 'WRONGTYPE' then return did end
    redis.call('DEL', key)
    redis.call(unpack(set))
  end
  redis.call('PEXPIRE', key, string.format('%.0f', math.max(1, math.ceil(2 * refill / 1000))))
end
return {0, 0, corrupt}
`

// swapScript puts a value in the place of the one that was seen. ARGV is what
// was seen, what shall be there ("" for nothing, both), its lifetime in
// milliseconds, and how long a value may be; a value that is longer, or that
// is none, counts as nothing. It answers 1, or 0 and what is there.
const swapScript = `
local is = redis.pcall('GET', KEYS[1])
if type(is) ~= 'string' or #is > tonumber(ARGV[4]) or #is < 9 or string.byte(is) ~= 1 then is = '' end
if is ~= ARGV[1] then return {0, is} end
if ARGV[2] == '' then
  redis.call('DEL', KEYS[1])
else
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
end
return {1, ''}
`

// boxScript is what the scripts of boxes have in common. KEYS are the box, a
// stream of messages "m" with their lifetimes "t" in milliseconds, and the
// count of its bytes. What is of another kind is removed.
const boxScript = `
if redis.call('TYPE', KEYS[1]).ok ~= 'stream' then redis.call('DEL', KEYS[1], KEYS[2]) end
local bytes = redis.pcall('GET', KEYS[2])
bytes = type(bytes) == 'string' and tonumber(bytes) or 0
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- first is the first message from an id on, and whether it is too old.
local function first(from)
  local e = redis.call('XRANGE', KEYS[1], from, '+', 'COUNT', 1)[1]
  if not e then return nil end
  local f = {}
  for i = 1, #e[2], 2 do f[e[2][i]] = e[2][i+1] end
  local ttl = tonumber(f.t or '')
  return e[1], f.m or '', not ttl or not f.m or tonumber(string.match(e[1], '^%d+')) + ttl <= now
end
local function forget(id, text)
  redis.call('XDEL', KEYS[1], id)
  bytes = bytes - #text
end
-- keep writes the count down, for as long as the box lives.
local function keep()
  if redis.call('EXISTS', KEYS[1]) == 0 then return end
  if redis.call('XLEN', KEYS[1]) == 0 then
    redis.call('DEL', KEYS[1], KEYS[2])
  else
    redis.call('SET', KEYS[2], string.format('%.0f', math.max(0, bytes)), 'PX', string.format('%.0f', math.max(1, redis.call('PTTL', KEYS[1]))))
  end
end
`

// postScript leaves a message in a box. KEYS are the box and the count of its
// bytes; ARGV is the message, its lifetime in milliseconds, how many messages
// and bytes a box may hold, and the channel that wakes its listener. It answers
// 1, or 0 when the box is full, and how many messages expired.
const postScript = boxScript + `
local full = function() return redis.call('XLEN', KEYS[1]) >= tonumber(ARGV[3]) or bytes + #ARGV[1] > tonumber(ARGV[4]) end
local expired = 0
while full() do
  local id, text, old = first('-')
  if not id or not old then break end
  forget(id, text)
  expired = expired + 1
end
if full() then
  keep()
  return {0, expired}
end
redis.call('XADD', KEYS[1], '*', 't', ARGV[2], 'm', ARGV[1])
bytes = bytes + #ARGV[1]
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', math.max(tonumber(ARGV[2]), redis.call('PTTL', KEYS[1]))))
keep()
redis.pcall('PUBLISH', ARGV[5], '')
return {1, expired}
`

// fetchScript reads the first messages of a box, and forgets those before them
// that are too old. KEYS are those of postScript; ARGV is how many messages
// and how many bytes to read, one message at least. It answers how many
// expired, whether there are more, and then the id and the text of each.
const fetchScript = boxScript + `
local answer, read, from = {0, 0}, 0, '-'
while true do
  local id, text, old = first(from)
  if not id then break end
  from = '(' .. id
  if old then
    forget(id, text)
    answer[1] = answer[1] + 1
  elseif #answer >= 2 + 2 * tonumber(ARGV[1]) or (read > 0 and read + #text > tonumber(ARGV[2])) then
    answer[2] = 1
    break
  else
    read = read + #text
    answer[#answer+1] = id
    answer[#answer+1] = text
  end
end
keep()
return answer
`

// doneScript forgets messages of a box that were taken: ARGV is their bytes in
// all, and the id of each.
const doneScript = boxScript + `
if redis.call('XDEL', KEYS[1], unpack(ARGV, 2)) > 0 then bytes = bytes - tonumber(ARGV[1]) end
keep()
return 0
`
