# Common to all scripts. Runs in dash, bash and BusyBox; all input comes as positional parameters, never as text.
LC_ALL=C; export LC_ALL; unset CDPATH
n=$1 wire=$2; shift 2
has() { command -v "$1" >/dev/null 2>&1; }
mark() { printf '\n@@%s %s\n' "$n" "$*"; }
rec() { printf '\n@@%s %s ' "$n" "$1"; }
refuse() { mark refused "$1"; }
there() { [ -e "$1" ] || [ -L "$1" ]; }
missing() { rec text; ls -ldL "$1"; refuse unknown; }
size() { stat -c %s "$1" 2>/dev/null || wc -c <"$1"; }
finish() { rec status; printf %s "$1"; }
regular() {
  if [ -d "$1" ]; then refuse is_directory
  elif [ -f "$1" ]; then return 0
  elif [ -e "$1" ]; then refuse not_regular
  else missing "$1"
  fi
  return 1
}
pick() {
  how=raw
  [ "$wire" = text ] || return 0
  for how in base64 openssl python3 perl uuencode od; do
    if has "$how"; then return 0; fi
  done
  refuse tool_missing
  exit 0
}
encode() {
  case $how in
    raw) cat ;;
    base64) base64 ;;
    openssl) openssl base64 ;;
    python3) python3 -c 'import base64, sys
while 1:
  d = sys.stdin.buffer.read(58368)
  if not d: break
  sys.stdout.write(base64.encodebytes(d).decode())' ;;
    perl) perl -MMIME::Base64 -e 'binmode STDIN; print encode_base64($d) while read(STDIN, $d, 58368)' ;;
    uuencode) uuencode -m x | sed '1d;$d' ;;
    od) od -An -v -tx1 ;;
  esac
}
decode() {
  if has base64; then base64 -d
  elif has openssl; then openssl base64 -d
  elif has python3; then python3 -c 'import base64, sys
for l in sys.stdin.buffer: sys.stdout.buffer.write(base64.b64decode(l))'
  elif has perl; then perl -MMIME::Base64 -ne 'print decode_base64($_)'
  elif has uudecode; then { echo 'begin-base64 600 x'; cat; echo; echo ====; } | uudecode -o /dev/stdout
  else echo 'base64: not found' >&2; return 127
  fi
}
answer() {
  pick
  mark begin "$how"
  if [ "$how" = raw ]; then "$@" 2>&1; else "$@" 2>&1 | encode; fi
  mark end
}
