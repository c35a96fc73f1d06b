# Appends one chunk: path, size of the whole, offset, mode, coding (base64, gzip), bytes of the chunk, the chunk.
# A chunk that the file has already is not appended again, so that requests can be repeated.
put() {
  umask 077
  rec text
  if [ ! -f "$1" ] || [ -L "$1" ]; then regular "$1" && refuse not_regular; return 0; fi
  status=0 length=$(size "$1") after=$(($3 + $6))
  if [ "$length" = "$3" ]; then
    if [ "$5" = gzip ]; then printf '%s\n' "$7" | decode | gzip -dc >>"$1"
    else printf '%s\n' "$7" | decode >>"$1"
    fi
    status=$?
    length=$(size "$1")
  elif [ "$length" != "$after" ]; then refuse corrupted; return 0
  fi
  if [ "$status" = 0 ] && [ "$length" = "$2" ]; then chmod "$4" "$1"; status=$?; fi
  finish "$status"
  rec size; printf %s "$length"
  # Some tools do not report that a disk is full.
  if [ "$length" != "$after" ]; then rec free; df -Pk "$1" 2>/dev/null; fi
}
answer put "$@"
