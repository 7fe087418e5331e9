-- argala_core::rules::rate::TokenBucket::take, word for word: counts one request, or tells how many
-- nanoseconds to wait. Every number is a whole one below 2^53, or compared with one only.
-- KEYS[1]: a member's level, "at:owed". ARGV: cost and capacity in nanoseconds; the time in
-- microseconds, or nothing for this server's own.
local cost, capacity, now = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local owed, cut = 0, false
local at, was = string.match(redis.call('GET', KEYS[1]) or '', '^(%d+):(%d+)$')
if at then
  owed = was - (now - at) * 1000
  if owed > capacity then
    owed, cut = capacity, true
  elseif owed < 0 then
    owed = 0
  end
end
local after = owed + cost
local wait = 0
if after > capacity then
  wait = after - capacity
  if not cut then
    return wait
  end
  after = owed
end
-- Kept for 10 s more than it matters: a clock that is set back makes nobody forget.
redis.call('SET', KEYS[1], string.format('%.0f:%.0f', now, after),
  'PX', string.format('%.0f', math.ceil(after / 1000000) + 10000))
return wait
