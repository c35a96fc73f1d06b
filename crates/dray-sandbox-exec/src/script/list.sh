# Lists what lies beneath a directory: path, depth, most characters of output (0: any).
# Each batch of paths is printed between the records b and d; d has its last path.
each='n=$1; shift
printf "\n@@%s b\n" "$n"
stat -c "
@@$n e %f %s %Y %y %n" "$@" 2>/dev/null
status=$?
[ "$status" -le 128 ] || exit 1
[ "$status" = 0 ] || stat -c %f / >/dev/null 2>&1 || for f; do
  printf "\n@@%s f " "$n"; ls -ldn "$f"; printf "\n@@%s p %s\n" "$n" "$f"
done
for f; do
  if [ -L "$f" ]; then printf "\n@@%s l %s\n\n@@%s t " "$n" "$f" "$n"; readlink "$f"; fi
done
printf "\n@@%s d %s\n" "$n" "$f"'
show() { sh -c "$each" sh "$n" "$@"; }
# Lists without find, in batches of 100: directory, depth.
crawl() (
  top=${1%/} depth=$2
  set --
  for f in "$top"/* "$top"/.[!.]* "$top"/..?*; do
    there "$f" || continue
    set -- "$@" "$f"
    if [ "$#" = 100 ]; then show "$@" || exit 1; set --; fi
  done
  if [ "$#" != 0 ]; then show "$@" || exit 1; fi
  [ "$depth" -gt 1 ] || exit 0
  for f in "$top"/* "$top"/.[!.]* "$top"/..?*; do
    if [ -d "$f" ] && [ ! -L "$f" ]; then crawl "$f" "$((depth - 1))" || exit 1; fi
  done
  exit 0
)
walk() {
  if [ ! -d "$1" ]; then
    if [ -e "$1" ]; then refuse not_directory; else missing "$1"; fi
    return 0
  fi
  if [ ! -r "$1" ] || [ ! -x "$1" ]; then refuse permission_denied; return 0; fi
  if ! has stat && ! has ls; then refuse tool_missing; return 0; fi
  # The last path shows that the walk came to its end. The status of find does not show it, because it is also 1 for an
  # entry that cannot be read. No entry has a path with two slashes.
  if has find; then find "${1%/}/" /dev//null -maxdepth "$2" -exec sh -c "$each" sh "$n" {} + 2>/dev/null
  else crawl "$1" "$2" 2>/dev/null && show /dev//null 2>/dev/null
  fi
  finish 0
}
if [ "$3" = 0 ]; then answer walk "$@"; else
  pick
  case $how in raw) room=$3 ;; od) room=$(($3 * 30 / 100)) ;; *) room=$(($3 * 72 / 100)) ;; esac
  cut() { walk "$@" | head -c "$room"; }
  answer cut "$@"
fi
