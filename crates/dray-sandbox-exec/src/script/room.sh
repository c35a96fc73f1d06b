# Prints the size of a file that was to be written, and the free space at its path: path.
look() {
  rec size
  if [ -f "$1" ]; then size "$1"; else printf 0; fi
  rec free
  df -Pk "$1" 2>/dev/null || df -Pk "${1%/*}/" 2>/dev/null
}
answer look "$@"
