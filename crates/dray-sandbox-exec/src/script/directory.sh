# Makes a directory and its parents: path.
make() {
  umask 022
  rec text
  mkdir -p "$1"
  finish "$?"
}
answer make "$@"
