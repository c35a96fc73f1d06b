# Removes: path, recursive (yes, no). A link is removed, not followed.
erase() {
  there "$1" || { missing "$1"; return 0; }
  if [ -d "$1" ] && [ ! -L "$1" ]; then
    [ "$2" = yes ] || { refuse is_directory; return 0; }
    rec text; rm -rf "$1"
  else
    rec text; rm -f "$1"
  fi
  finish "$?"
}
answer erase "$@"
