# Renames: from, to, replace (yes, no). Reports whether the rename was atomic.
bare() {
  case $("$1" --help 2>&1) in *no-target-directory*|*-T*|*finT*) echo -T ;; esac
}
over() {
  flag=$(bare mv)
  if [ -d "$2" ] && [ ! -L "$2" ]; then
    if [ -z "$flag" ] || [ ! -d "$1" ] || [ -L "$1" ]; then refuse is_directory; return 0; fi
  elif [ -d "$2" ]; then
    # Only mv of GNU replaces a link to a directory; others move into the directory.
    case $(mv --help 2>&1) in *no-target-directory*) ;; *) atomic=no; rm -f "$2" ;; esac
  fi
  rec text; mv -f $flag "$1" "$2"
  finish "$?"
}
claim() {
  if there "$2"; then refuse exists; return 0; fi
  flag=$(bare mv)
  rec text
  if [ -d "$1" ] && [ ! -L "$1" ]; then
    mkdir "$2" || { finish 1; return 0; }
    [ -n "$flag" ] || { atomic=no; rmdir "$2"; }
    mv -f $flag "$1" "$2" || { rmdir "$2" 2>/dev/null; finish 1; return 0; }
  elif ln $(bare ln) "$1" "$2" 2>/dev/null; then
    rm -f "$1"
  elif there "$2"; then refuse exists; return 0
  else
    (set -C; : >"$2") || { finish 1; return 0; }
    atomic=no
    mv -f $flag "$1" "$2" || { rm -f "$2"; finish 1; return 0; }
  fi
  finish 0
}
move() {
  there "$1" || { missing "$1"; return 0; }
  atomic=yes
  if [ "$3" = yes ]; then over "$1" "$2"; else claim "$1" "$2"; fi
  rec atomic; printf %s "$atomic"
}
answer move "$@"
