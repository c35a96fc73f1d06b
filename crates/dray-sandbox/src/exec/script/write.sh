# Writes stdin: path, size of the whole, offset, mode, coding (none, raw, base64, gzip), bytes of input
# (0: to its end), whether to digest the bytes on their way (yes, no).
fill() {
  case $1 in
    raw) if [ "$2" = 0 ]; then cat; else head -c "$2"; fi ;;
    base64) if [ "$2" = 0 ]; then decode; else head -c "$2" | decode; fi ;;
    gzip) decode | gzip -dc ;;
    none) ;;
  esac
}
# The digest is that of what went into the file: what tee cannot write makes the file too short.
beside() {
  (set -C; : >"$1") || return 1
  sum=$(fill "$5" "$6" | tee "$1" | sha256sum)
}
put() {
  umask 077
  sum=
  rec text
  if [ "$3" = 0 ]; then
    if there "$1"; then refuse exists; return 0; fi
    if [ "$7" = yes ] && has tee && has sha256sum; then beside "$@"
    else (set -C; fill "$5" "$6" >"$1")
    fi
  else
    if [ ! -f "$1" ] || [ -L "$1" ]; then regular "$1" && refuse not_regular; return 0; fi
    if [ "$(size "$1")" != "$3" ]; then refuse corrupted; return 0; fi
    fill "$5" "$6" >>"$1"
  fi
  status=$?
  length=$(size "$1" 2>/dev/null)
  if [ "$status" = 0 ] && [ "$length" = "$2" ]; then chmod "$4" "$1"; status=$?; fi
  finish "$status"
  rec size; printf %s "$length"
  if [ -n "$sum" ]; then rec sha256; printf %s "${sum%% *}"; fi
  # Some tools do not tell that a disk is full.
  if [ "$length" != "$2" ]; then rec free; df -Pk "$1" 2>/dev/null; fi
}
answer put "$@"
