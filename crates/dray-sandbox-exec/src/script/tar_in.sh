# Unpacks a tar from stdin: path, coding (raw, base64). The directory keeps its mode.
unpack() {
  case $(tar --version 2>/dev/null) in
    *GNU*) tar --extract --no-same-owner --no-same-permissions --no-overwrite-dir --file=- ;;
    *) tar xof - ;;
  esac
}
put() {
  if [ ! -d "$1" ]; then
    if [ -e "$1" ]; then refuse not_directory; else missing "$1"; fi
    return 0
  fi
  if ! has tar; then refuse tool_missing; return 0; fi
  rec text
  umask 022
  cd "$1" || { finish 1; return 0; }
  mode=$(stat -c %a .)
  if [ "$2" = raw ]; then unpack; else decode | unpack; fi
  status=$?
  if [ -n "$mode" ] && [ "$(stat -c %a .)" != "$mode" ]; then chmod "$mode" .; fi
  finish "$status"
}
answer put "$@"
