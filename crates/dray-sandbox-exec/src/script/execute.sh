# Runs one program and reports how it ended. Names begin with `dray_` and nothing is exported, so that the program gets
# the environment of the sandbox and the requested variables, no more. The request comes as words in single quotes in which
# `printf` makes the bytes: directory, input (none, end, a number of bytes, or text:BYTES), most bytes of stderr, most
# bytes of stdout (0: any), lifetime in seconds, limit on file locks, whether stderr comes while the program writes it (live,
# or -), number of variables, variables, program and arguments.
# The functions of marked.sh precede this script.
dray_nonce=$1 dray_wire=$2 dray_words=$3
dray_mark() { printf '\n@@%s %s\n' "$dray_nonce" "$*"; }
dray_refuse() { dray_mark refused "$1"; exit 0; }
dray_has() { command -v "$1" >/dev/null; }
if [ "$dray_words" = - ]; then IFS= read -r dray_words || dray_refuse truncated; fi
for dray_how in base64 openssl od -; do if dray_has "$dray_how"; then break; fi; done
for dray_tool in env head cat; do dray_has "$dray_tool" || dray_how=-; done
[ "$dray_how" != - ] || dray_refuse tool_missing
dray_encode() { case $dray_how in base64) base64 ;; openssl) openssl base64 ;; od) od -An -v -tx1 ;; esac; }
eval "set -- $(printf %b "$dray_words")"
cd -P "$1" || dray_refuse not_directory
[ "$(pwd -P && printf .)" = "$1
." ] || dray_refuse changed_during_transfer
dray_input=$2 dray_stderr=$3 dray_stdout=$4 dray_lifetime=$5 dray_limit=$6 dray_live=$7 dray_count=$8
shift 8
dray_has dd || dray_live=-
dray_at=0 dray_path=$PATH dray_program=
for dray_word do
  if [ "$dray_at" = "$dray_count" ]; then dray_program=$dray_word; break; fi
  case $dray_word in PATH=*) dray_path=${dray_word#PATH=} ;; esac
  dray_at=$((dray_at + 1))
done
dray_runs() { [ -f "$1" ] && [ -x "$1" ]; }
dray_found() {
  case $dray_program in */*)
    if dray_runs "$dray_program"; then return 0; fi
    if [ -e "$dray_program" ]; then dray_refuse permission_denied; fi
    return 1 ;;
  esac
  dray_rest=$dray_path:
  while [ -n "$dray_rest" ]; do
    dray_folder=${dray_rest%%:*} dray_rest=${dray_rest#*:}
    if dray_runs "${dray_folder:-.}/$dray_program"; then return 0; fi
  done
  return 1
}
dray_found || dray_refuse not_found
# Children that the program left get half a second to end by themselves. A killed child may just have started another.
dray_reap() {
  kill -9 "$dray_watcher"
  dray_left=30
  while [ "$dray_left" != 0 ]; do
    [ -n "$(dray_marked "DRAY_COMMAND=run.$dray_nonce" "$dray_limit")" ] || return 0
    dray_left=$((dray_left - 1))
    if [ "$dray_left" -ge 20 ]; then sleep 0.05 || sleep 1
    else dray_kill "DRAY_COMMAND=run.$dray_nonce" "$dray_limit"
    fi
  done
}
# Ends the program after its lifetime, or when this shell was killed. Checks each second, so that it ends soon afterwards.
dray_watch() {
  while [ "$dray_lifetime" -gt 0 ] && kill -0 "$$"; do
    sleep 1
    dray_lifetime=$((dray_lifetime - 1))
  done
  dray_kill_all "DRAY_COMMAND=run.$dray_nonce" "$dray_limit"
}
# Becomes the program. Shells have -x or -w for the limit; where neither works, the variable alone marks the program.
dray_become() {
  { ulimit -x "$dray_limit" || ulimit -w "$dray_limit"; } 2>/dev/null
  exec env "DRAY_COMMAND=run.$dray_nonce" "$@"
}
# Reads what the program left of its input and passes the status on, because Podman loses the output of a command that
# leaves input unread. If the input does not end within a second, kills the process that waits for more.
dray_rest() {
  timeout 1 cat >/dev/null 3>&- 4>&- 5>&- 6>&- || dray_kill "DRAY_COMMAND=input.$dray_nonce" ""
  return "$1"
}
# The descriptors are those of the capture below. In a subshell, because dash redirects itself for a plain command and
# would write its message about a signal to the stderr of the program.
dray_run() {
  case $dray_input in
    none) (dray_become "$@") </dev/null >&3 2>&4 3>&- 4>&- 5>&- 6>&- ;;
    end) (dray_become "$@") >&3 2>&4 3>&- 4>&- 5>&- 6>&-; dray_rest $? ;;
    text:*) printf %b "${dray_input#text:}" | (dray_become "$@") >&3 2>&4 3>&- 4>&- 5>&- 6>&- ;;
    *) env "DRAY_COMMAND=input.$dray_nonce" head -c "$dray_input" | { (dray_become "$@") >&3 2>&4 3>&- 4>&- 5>&- 6>&-; dray_rest $?; } ;;
  esac
}
# Passes stderr on between the output, in chunks as `dd` reads them: `head` would hold them back. A chunk is written in one
# step and is shorter than PIPE_BUF (POSIX, 4096 on Linux), so that no output of the program gets into it. It has no line
# breaks, because bash writes each line by itself.
dray_frames() {
  case $dray_how in od) dray_size=1024 ;; *) dray_size=2048 ;; esac
  while dray_piece=$(dd bs=$dray_size count=1 2>/dev/null | dray_encode); [ -n "$dray_piece" ]; do
    dray_flat=
    for dray_line in $dray_piece; do dray_flat=$dray_flat$dray_line; done
    printf '@@%s err %s@' "$dray_nonce" "$dray_flat" >&6
  done
}
dray_first() { head -c "$1"; cat >/dev/null; }
# stdout goes to 3, encoded stderr and the status to 5.
dray_capture() {
  { dray_run "$@" 4>&1; dray_status=$?; dray_reap; printf '@%s@' "$dray_status" >&5; } |
    if [ "$dray_live" = live ]; then dray_frames
    else dray_first "$dray_stderr" | dray_encode >&5
    fi
}
dray_whole() {
  exec 6>&1
  if [ "$dray_stdout" = 0 ]; then dray_end=$({ dray_capture "$@" 3>&6; } 5>&1)
  else dray_end=$({ dray_capture "$@" 3>&1 | dray_first "$dray_stdout" >&6; } 5>&1)
  fi
  # No line break comes before the mark: the reader would have to hold back the end of each line of the output.
  printf '@@%s end %s %s\n@@%s done\n' "$dray_nonce" "$dray_how" "$dray_end" "$dray_nonce"
}
dray_watch </dev/null >/dev/null &
dray_watcher=$!
if [ "$dray_wire" = text ]; then
  dray_mark begin "$dray_how"
  dray_whole "$@" | dray_encode
else
  dray_mark begin "raw $dray_how"
  dray_whole "$@"
fi
