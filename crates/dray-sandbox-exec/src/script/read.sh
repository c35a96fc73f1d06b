# Sends a regular file: path, offset, most bytes, most characters of output (0: any), compress (yes, no), and whether to
# compute the digest of the whole file meanwhile (yes, no).
p=$1 offset=$2 want=$3 room=$4 squeeze=$5 digest=$6 pack=- sum=- whole=no
take() {
  if [ "$offset" = 0 ]; then first
  elif dd bs=1 skip="$offset" count=0 >/dev/null 2>&1; then first
  else tail -c "+$((offset + 1))" | first
  fi
}
# BusyBox's head copies byte by byte, so it gets only the rest below 1 MiB. dd counts reads, which are full from a file.
first() {
  if [ "$whole" = yes ]; then
    dd bs=1048576 count="$((want / 1048576))" 2>/dev/null && head -c "$((want % 1048576))"
  else head -c "$want"
  fi
}
# The digest is of the opened file, not of another file that has its name now.
digested() {
  if [ -e /proc/self/fd/3 ]; then sha256_by "$sha256" </proc/self/fd/3; else sha256_by "$sha256" <"$p"; fi
}
beside() {
  { sum=$(digested & take <&3 >&4; status=$?; wait; printf ' %s' "$status"); } 4>&1
  status=${sum##* } sum=${sum%% *}
}
facts() {
  stat -L -c '%s %d:%i %Y %y' /proc/self/fd/3 2>/dev/null || stat -c '%s %d:%i %Y %y' "$p" 2>/dev/null || echo -
}
sample() {
  whole=$want
  [ "$want" -le 65536 ] || want=65536
  packed=$(take <"$p" | gzip -c | wc -c)
  if [ $((packed * 10)) -lt $((want * 9)) ]; then pack=gzip; fi
  want=$whole
}
send() {
  if [ -e /proc/self/fd/3 ] && [ ! -f /proc/self/fd/3 ]; then refuse not_regular; return 0; fi
  if [ "$how" != raw ] && [ "$squeeze" = yes ] && [ "$want" -gt 1024 ] && has gzip; then sample; fi
  mark begin "$how" "$pack" "$want" "$(facts)"
  status=0
  if [ "$how" = raw ] && [ "$digest" = yes ] && choose_sha256 "$want"; then beside
  elif [ "$how" = raw ]; then take <&3; status=$?
  elif [ "$pack" = gzip ]; then { take <&3 || mark broken >&2; } | gzip -c | encode
  else { take <&3 || mark broken >&2; } | encode
  fi
  if [ "$room" != 0 ] && has sha256sum; then
    # The digest is of the opened file: the next range sees that another file has its name now.
    if [ -e /proc/self/fd/3 ]; then sum=$(take </proc/self/fd/3 | sha256sum)
    else sum=$(take <"$p" | sha256sum)
    fi
  fi
  mark end "$status" "${sum%% *}" "$(facts)"
}
if [ -L "$p" ]; then refuse changed_during_transfer; exit 0; fi
regular "$p" 2>&1 || exit 0
# A message of the shell about a file that it cannot open must not be part of the reply.
[ -r "$p" ] || { refuse permission_denied; exit 0; }
pick
if [ "$how$room$offset" = raw00 ] && [ "$want" -ge 1048576 ] && has dd; then whole=yes; fi
if [ "$room" != 0 ]; then
  case $how in raw) ;; od) room=$((room * 30 / 100)) ;; *) room=$((room * 72 / 100)) ;; esac
  [ "$want" -le "$room" ] || want=$room
fi
send 3<"$p"
