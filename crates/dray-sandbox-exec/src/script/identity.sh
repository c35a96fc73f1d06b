# Prints the identity of a directory, by which a replacement at the same path is noticed: device, inode and, where it is
# known, time of birth; then its path without links. Without an argument, the directory is the home directory.
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
# Prints the identity of a directory. The result of the probe from that directory follows.
examine() {
  found=no
  identity "$1"
  if [ "$found" = yes ]; then ask; fi
}
answer examine "$@"
