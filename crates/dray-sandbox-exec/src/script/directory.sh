# Makes directories and their parents: paths.
make() {
  umask 022
  rec text
  mkdir -p "$@"
  finish "$?"
}
answer make "$@"
