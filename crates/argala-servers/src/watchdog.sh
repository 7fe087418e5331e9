# Stops the servers of a folder once nobody uses them, however their users ended.
# $1: the folder; $2: for how many seconds in a row nobody must hold its lock; $3: whether to
# `keep` or to `remove` the folder itself.
trap '' HUP INT TERM
cd / || exit 1
exec 8>>"$1/watchdog" || exit 1
flock --nonblock 8 || exit 0
# A process that is dead and not yet buried is no process any more.
lives() { kill -0 "$1" 2>/dev/null && ! grep -q '^State:.Z' "/proc/$1/status" 2>/dev/null; }
idle=0
while sleep 1; do
  [ -e "$1/users" ] || exit 0
  exec 9>>"$1/users"
  if flock --nonblock --exclusive 9; then
    idle=$((idle + 1))
    [ "$idle" -ge "$2" ] && break
    # Whoever started the users has stopped the servers already.
    [ -e "$1/server" ] || break
    flock --unlock 9
  else
    idle=0
  fi
  exec 9>&-
done
# From here to our end nobody can become a user: they wait for the lock and look again.
for pid_file in "$1"/server/*/pid "$1"/server/postgres/data/postmaster.pid; do
  pid=$(head -n 1 "$pid_file" 2>/dev/null) || continue
  # Nobody will read this data again: QUIT ends Postgres at once, with its children.
  kill -QUIT "$pid" 2>/dev/null
  tries=0
  while lives "$pid"; do
    tries=$((tries + 1))
    [ "$tries" -gt 100 ] && kill -KILL "$pid" 2>/dev/null
    sleep 0.1
  done
done
if container=$(head -n 1 "$1/server/container" 2>/dev/null); then
  docker rm --force --volumes "$container" >/dev/null 2>&1
fi
rm -rf "$1/server" "$1/addresses"
[ "$3" = keep ] || rm -rf "$1"
