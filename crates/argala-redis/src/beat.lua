-- Notes that a replica lives, and tells how many do.
-- KEYS[1]: replicas by when they were last heard of. ARGV: this one's name; after how many
-- milliseconds of silence one counts no more.
local time = redis.call('TIME')
local now, silence = time[1] * 1000 + math.floor(time[2] / 1000), tonumber(ARGV[2])
local function text(number) return string.format('%.0f', number) end
redis.call('ZADD', KEYS[1], text(now), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', text(now - silence))
-- Of before the clock was set back.
redis.call('ZREMRANGEBYSCORE', KEYS[1], text(now + silence), '+inf')
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return redis.call('ZCARD', KEYS[1])
