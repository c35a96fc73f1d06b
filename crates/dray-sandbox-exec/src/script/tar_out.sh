# Sends a directory as tar: path.
if [ ! -d "$1" ]; then
  if [ -e "$1" ]; then refuse not_directory; else missing "$1" 2>&1; fi
  exit 0
fi
if ! has tar; then refuse tool_missing; exit 0; fi
if [ ! -r "$1" ] || ! cd "$1" 2>/dev/null; then refuse permission_denied; exit 0; fi
pack() {
  case $(tar --version 2>/dev/null) in
    *GNU*) tar --create --hard-dereference --file=- . ;;
    *) tar cf - . ;;
  esac
}
pick
mark begin "$how" - 0 -
status=0
if [ "$how" = raw ]; then pack; status=$?; else { pack || mark broken >&2; } | encode; fi
mark end "$status" - -
