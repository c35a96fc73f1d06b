# What tells a directory from another one at its path: device, inode and, where it is known, birth; and its path without
# links. Without an argument it is the home directory.
identity() {
  rec text
  if [ -n "$1" ]; then cd -- "$1"; else cd; fi || { refuse sandbox_gone; return 0; }
  rec identity
  stat -c %d:%i:%.9W . 2>/dev/null || stat -c %d:%i . 2>/dev/null || stat -f %d:%i . 2>/dev/null || ls -di . || {
    refuse tool_missing
    return 0
  }
  rec path; pwd -P
  finish "$?"
  found=yes
}
# With yes as the second argument, what is here follows where the directory is.
examine() {
  found=no
  identity "$1"
  if [ "$found$2" = yesyes ]; then ask; fi
}
answer examine "$@"
