# Prints the metadata of a path: follow (yes, no), path.
real() {
  if has readlink; then readlink -f "$1"
  elif has realpath; then realpath "$1"
  elif [ -d "$1" ]; then (cd -P "$1" && pwd -P)
  elif [ ! -L "$1" ]; then
    up=${1%/*}
    (cd -P "${up:-/}" && up=$(pwd -P; echo .) && up=${up%??} && printf '%s/%s\n' "${up%/}" "${1##*/}")
  else return 1
  fi
}
look() {
  link=; [ "$1" = no ] || link=-L
  rec stat
  stat $link -c '%f %s %Y %u %g %h %d %i %y' "$2"
  status=$?
  if [ "$status" != 0 ] && ! stat -c %f / >/dev/null 2>&1; then
    link=; [ "$1" = no ] || link=L
    rec ls
    ls "-ldn$link" "$2"
    status=$?
  fi
  finish "$status"
  [ "$status" = 0 ] || return 0
  if [ "$1" = no ] && [ -L "$2" ]; then
    rec target; readlink "$2"
    return 0
  fi
  rec fs; stat -f -c %t "$2" 2>/dev/null
  rec real; real "$2"
  status=$?
  rec resolved; printf %s "$status"
}
answer look "$@"
