#!/bin/sh
# Stands in for apptainer: the commands, outputs, statuses and words that are used of it. Instances are processes of
# this host; their files are those of this host, except that a directory can be bound where /exchange would be.
#
#   instance start IMAGE NAME     instance stop NAME     instance list --json     exec [--pwd DIR] instance://NAME CMD…
state=${APPTAINER_CONFIGDIR:?}/instances
mkdir -p "$state"
fatal() { echo "FATAL:   $*" >&2; exit 255; }
case "$1 $2" in
  "instance start")
    [ ! -e "$state/$4" ] || fatal "instance $4 already exists"
    sleep 600 </dev/null >/dev/null 2>&1 &
    echo "$!" >"$state/$4"
    echo "INFO:    instance started successfully" >&2
    ;;
  "instance stop")
    [ -e "$state/$3" ] || fatal "no instance found"
    pid=$(cat "$state/$3")
    kill -9 "$pid"
    until [ ! -e "/proc/$pid" ] || grep -q ') [ZX] ' "/proc/$pid/stat" 2>/dev/null; do :; done
    rm "$state/$3"
    ;;
  "instance list")
    [ "$3" = --json ] || exit 1
    printf '{\n\t"instances": ['
    comma=
    for file in "$state"/*; do
      [ -e "$file" ] || continue
      printf '%s\n\t\t{"instance": "%s", "pid": %s, "img": "/images/box.sif", "ip": "", "logErrPath": "/dev/null"}' \
        "$comma" "${file##*/}" "$(cat "$file")"
      comma=,
    done
    printf '\n\t]\n}\n'
    ;;
  exec*)
    shift
    directory=
    if [ "$1" = --pwd ]; then directory=$2; shift 2; fi
    name=${1#instance://}
    [ "$name" != "$1" ] || fatal "could not open image $1"
    [ -e "$state/$name" ] || fatal "no instance found with name $name"
    shift
    command -v "$1" >/dev/null || fatal "\"$1\": executable file not found in \$PATH"
    echo "INFO:    using the cached image" >&2
    [ -z "$directory" ] || cd "$directory" || exit 255
    if [ -n "$BIND" ]; then
      exec unshare -rm sh -c 'mount --bind "$0" "$1" && shift && exec "$@"' "${BIND%%:*}" "${BIND#*:}" "$@"
    fi
    exec "$@"
    ;;
  *) fatal "unknown command \"$1\" for \"apptainer\"" ;;
esac
