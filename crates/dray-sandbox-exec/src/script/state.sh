# Prints values that change with a regular file, and the time: path. Valid only where this kernel keeps the times.
state() {
  if [ -L "$1" ]; then refuse changed_during_transfer; return 0; fi
  regular "$1" || return 0
  rec text
  [ -r "$1" ] || { (: <"$1"); refuse permission_denied; return 0; }
  rec fs; stat -f -c %t "$1" 2>/dev/null
  # Entries of /proc have the time at which they were looked up; an older time only makes a file look younger.
  rec now; date +%s 2>/dev/null || stat -L -c %Y /proc/self
  rec state; stat -c '%f %d:%i %s %Y %Z %y %z' "$1"
  finish "$?"
}
answer state "$@"
