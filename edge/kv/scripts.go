package kv

import "github.com/redis/go-redis/v9"

// scripts are what runs inside the Redis. Each names all of its keys, and those
// of one call lie in one slot of a cluster.
type scripts struct {
	take, undo, swap, post, fetch, done, echo *redis.Script
}

func newScripts() scripts {
	return scripts{
		take:  redis.NewScript(takeScript),
		undo:  redis.NewScript(undoScript),
		swap:  redis.NewScript(swapScript),
		post:  redis.NewScript(postScript),
		fetch: redis.NewScript(fetchScript),
		done:  redis.NewScript(doneScript),
		echo:  redis.NewScript("return ARGV[1]"),
	}
}

// Only one failure of a command in a script says that there is something of
// another kind, WRONGTYPE. Every other one, such as a right that is missing, is
// the failure of the script, and what the commands before it have written must
// be nothing, or nothing that matters: rights are tried on what is there before
// anything is written.

// takeScript takes a token from every bucket or from none, by the time of the
// store. KEYS are the buckets, and at last the record of the taking; ARGV has
// for each bucket the tokens it holds and the microseconds in which it fills,
// and at last for how many milliseconds the record is kept.
// A bucket is a hash of "tokens" and "last_refill" (microseconds), and lives
// for twice the time in which it fills. It answers with the microseconds to
// wait, the bucket that wants them (from 1; 0 for none), and how many buckets
// held something else, which count as full. A taking whose record is there is
// not done again; one that was undone before it came is not done: -1.
const takeScript = `
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local n = #KEYS - 1
local record = KEYS[n+1]
local left, there, wait, short, corrupt = {}, {}, 0, 0, 0
for i = 1, n do
  local key, full, refill = KEYS[i], tonumber(ARGV[2*i-1]), tonumber(ARGV[2*i])
  local have = left[key]
  if have == nil then
    have = full
    local h = redis.pcall('HMGET', key, 'tokens', 'last_refill')
    if h.err then
      if string.sub(h.err, 1, 9) ~= 'WRONGTYPE' then return h end
      corrupt = corrupt + 1
    elseif h[1] or h[2] then
      there[key] = true
      local tokens, last = tonumber(h[1] or ''), tonumber(h[2] or '')
      if tokens == nil or last == nil or tokens ~= tokens or last ~= last then
        corrupt = corrupt + 1
      else
        tokens = math.max(0, math.min(tokens, full))
        last = math.min(last, now)
        have = math.min(full, tokens + (now - last) * full / refill)
      end
    end
  end
  if have < 1 - 1e-9 then
    local w = math.max(1, math.ceil((1 - have) * refill / full))
    if w > wait then wait, short = w, i end
  end
  left[key] = have - 1
end
if short > 0 then
  if redis.call('GET', record) == '1' then return {0, 0, corrupt} end
  return {wait, short, corrupt}
end
if not redis.call('SET', record, '1', 'NX', 'PX', ARGV[2*n+1]) then
  if redis.call('GET', record) == '1' then return {0, 0, corrupt} end
  return {-1, 0, corrupt}
end
for i = 1, n do
  local key, refill = KEYS[i], tonumber(ARGV[2*i])
  local lives = string.format('%.0f', math.max(1, math.ceil(2 * refill / 1000)))
  local set = {'HSET', key, 'tokens', string.format('%.9f', math.max(0, left[key])), 'last_refill', string.format('%.0f', now)}
  redis.call('PEXPIRE', key, lives)
  local did = redis.pcall(unpack(set))
  if type(did) == 'table' then
    if string.sub(did.err, 1, 9) ~= 'WRONGTYPE' then return did end
    redis.call('DEL', key)
    redis.call(unpack(set))
    there[key] = nil
  end
  if not there[key] then redis.call('PEXPIRE', key, lives) end
end
return {0, 0, corrupt}
`

// undoScript gives back what takeScript took, if it did, and has it take
// nothing when it comes later. KEYS and ARGV are those of takeScript. It answers
// 1 when something was given back, else 0.
const undoScript = `
local n = #KEYS - 1
local record = KEYS[n+1]
local keep = {'SET', record, '0', 'PX', ARGV[2*n+1]}
if redis.call('GET', record) ~= '1' then
  redis.call(unpack(keep))
  return 0
end
local left = {}
for i = 1, n do
  local key = KEYS[i]
  if left[key] == nil then
    local h = redis.pcall('HMGET', key, 'tokens', 'last_refill')
    if h.err and string.sub(h.err, 1, 9) ~= 'WRONGTYPE' then return h end
    left[key] = not h.err and h[2] and tonumber(h[1] or '') or false
  end
  if left[key] then left[key] = math.min(tonumber(ARGV[2*i-1]), left[key] + 1) end
end
redis.call(unpack(keep))
for key, tokens in pairs(left) do
  if tokens then redis.call('HSET', key, 'tokens', string.format('%.9f', tokens)) end
end
return 1
`

// swapScript puts a value in the place of the one that was seen. ARGV is what
// was seen, what shall be there ("" for nothing, both), its lifetime in
// milliseconds, and how long a value may be; a value that is longer, or that
// is none, counts as nothing. It answers 1, or 0 and what is there.
const swapScript = `
local is = redis.pcall('GET', KEYS[1])
if type(is) == 'table' and string.sub(is.err, 1, 9) ~= 'WRONGTYPE' then return is end
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
if type(bytes) == 'table' and string.sub(bytes.err, 1, 9) ~= 'WRONGTYPE' then return bytes end
bytes = type(bytes) == 'string' and tonumber(bytes) or 0
if not (bytes >= 0 and bytes < 2^48) then bytes = 0 end
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
-- keep writes the count down, for as long as the box lives. A box that is empty
-- stays for a second: a stream that is made anew would give the id of a message
-- that was taken to another one of the same millisecond, and who has to say
-- twice that it took the first would remove the other.
local function keep()
  if redis.call('EXISTS', KEYS[1]) == 0 then return end
  if redis.call('XLEN', KEYS[1]) == 0 then
    redis.call('DEL', KEYS[2])
    local left = redis.call('PTTL', KEYS[1])
    if left < 0 or left > 1000 then redis.call('PEXPIRE', KEYS[1], 1000) end
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
bytes = bytes + #ARGV[1]
local lives = string.format('%.0f', math.max(tonumber(ARGV[2]), redis.call('PTTL', KEYS[1])))
redis.call('PUBLISH', ARGV[5], '')
redis.call('PEXPIRE', KEYS[1], lives)
redis.call('SET', KEYS[2], string.format('%.0f', bytes), 'PX', lives)
redis.call('XADD', KEYS[1], '*', 't', ARGV[2], 'm', ARGV[1])
redis.call('PEXPIRE', KEYS[1], lives)
return {1, expired}
`

// fetchScript reads the first messages of a box, and forgets those before them
// that are too old or too large. KEYS are those of postScript; ARGV is how many
// messages and how many bytes to read, one message at least, and how many bytes
// a message may have. It answers how many were forgotten, whether there are more, and then the id and the text of each.
const fetchScript = boxScript + `
local answer, read, from = {0, 0}, 0, '-'
while true do
  local id, text, old = first(from)
  if not id then break end
  from = '(' .. id
  if old or #text > tonumber(ARGV[3]) then
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
