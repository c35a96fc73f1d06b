# Lists what lies beneath a directory: path, depth, most characters of output (0: any).
each='n=$1; shift
stat -c "
@@$n e %f %s %Y %y %n" "$@" 2>/dev/null || stat -c %f / >/dev/null 2>&1 || for f; do
  printf "\n@@%s f " "$n"; ls -ldn "$f"; printf "\n@@%s p %s\n" "$n" "$f"
done
for f; do
  if [ -L "$f" ]; then printf "\n@@%s l %s\n\n@@%s t " "$n" "$f" "$n"; readlink "$f"; fi
done'
walk() {
  if [ ! -d "$1" ]; then
    if [ -e "$1" ]; then refuse not_directory; else missing "$1"; fi
    return 0
  fi
  if [ ! -r "$1" ] || [ ! -x "$1" ]; then refuse permission_denied; return 0; fi
  if ! has find; then refuse tool_missing; return 0; fi
  find "${1%/}/" -mindepth 1 -maxdepth "$2" -exec sh -c "$each" sh "$n" {} + 2>/dev/null
  finish 0
}
if [ "$3" = 0 ]; then answer walk "$@"; else
  pick
  case $how in raw) room=$3 ;; od) room=$(($3 * 30 / 100)) ;; *) room=$(($3 * 72 / 100)) ;; esac
  cut() { walk "$@" | head -c "$room"; }
  answer cut "$@"
fi
