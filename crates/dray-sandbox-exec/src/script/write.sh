# Writes stdin: path, size of the whole, offset, mode, coding (none, raw, base64, gzip), bytes of input
# (0: to its end), whether to digest the bytes on their way (yes, no).
fill() {
  case $1 in
    raw) if [ "$2" = 0 ]; then cat; else take "$2"; fi ;;
    base64) if [ "$2" = 0 ]; then decode; else head -c "$2" | decode; fi ;;
    gzip) decode | gzip -dc ;;
    none) ;;
  esac
}
# BusyBox's head copies byte by byte, so it gets only the rest below 1 MiB.
take() {
  if [ "$1" -ge 1048576 ] && has_full_blocks; then
    dd bs=1048576 count="$(($1 / 1048576))" iflag=fullblock 2>/dev/null && head -c "$(($1 % 1048576))"
  else head -c "$1"
  fi
}
has_full_blocks() {
  has dd && dd bs=1 count=0 iflag=fullblock </dev/null >/dev/null 2>&1
}
# The digest is of the bytes that tee reads. If tee cannot write all of them, the file is too short.
beside() {
  (set -C; : >"$1") || return 1
  sum=$(fill "$5" "$6" | tee "$1" | sha256_by "$sha256")
}
# tee copies 1 to 8 KiB at a time, which takes most of the time for a large file. So the file is written in turns of
# 8 MiB, and what a turn wrote is read again, from memory, while the next one is written.
in_turns() {
  (set -C; : >"$1") || return 1
  sum=$(
    if [ "$5" = raw ]; then write_turns "$1" "$6" 5>>"$1"
    else fill "$5" "$6" | write_turns "$1" 0 5>>"$1"
    fi | read_turns 4<"$1" | sha256_by "$sha256"
  )
}
# Path, bytes of input (0: to its end).
write_turns() {
  at=0 blocks=8 rest=0
  while [ "$2" = 0 ] || [ "$at" -lt "$2" ]; do
    if [ "$2" != 0 ] && [ "$(($2 - at))" -lt 8388608 ]; then
      blocks=$((($2 - at) / 1048576)) rest=$((($2 - at) % 1048576))
    fi
    dd bs=1048576 count="$blocks" iflag=fullblock 2>/dev/null >&5 || break
    [ "$rest" = 0 ] || head -c "$rest" >&5 || break
    now=$(size "$1")
    [ "$now" != "$at" ] || break
    at=$now
    echo
  done
}
read_turns() {
  while read -r turn; do dd bs=1048576 count=8 <&4 2>/dev/null; done
  cat <&4
}
# Whether turns are possible, and faster for a file of this many bytes.
has_turns() {
  [ "$1" -gt 8388608 ] && has cat && has_full_blocks
}
put() {
  umask 077
  sum=
  rec text
  if [ "$3" = 0 ]; then
    if there "$1"; then refuse exists; return 0; fi
    if [ "$7" != yes ] || ! choose_sha256 "$2"; then (set -C; fill "$5" "$6" >"$1")
    elif has_turns "$2"; then in_turns "$@"
    elif has tee; then beside "$@"
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
  # Some tools do not report that a disk is full.
  if [ "$length" != "$2" ]; then rec free; df -Pk "$1" 2>/dev/null; fi
}
answer put "$@"
