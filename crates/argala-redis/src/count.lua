-- Adds to a counter and sees to it that it is forgotten, in one step.
-- KEYS[1]: the counter. ARGV: how much; after how many milliseconds it is gone.
local count = redis.call('INCRBY', KEYS[1], ARGV[1])
if redis.call('PTTL', KEYS[1]) < 0 then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return count
