# Finds and kills the processes of a command by what children inherit: a text in the environment (the first argument), or
# the limit on file locks (the second one, where there is one), which stays when a child clears its environment. The kernel
# has ignored that limit since 2.4.25. Needs only the shell; with a grep that knows lines that end with NUL, it is much
# faster where many processes run.
dray_grep=
if printf 'a\000b' | grep -qszF b; then dray_grep=z; elif echo b | grep -qsF b; then dray_grep=text; fi
# A file of a process that ends meanwhile cannot be read, and Bash then leaves the variable as it was.
dray_holds() {
  dray_line=
  while IFS= read -r dray_line || [ -n "$dray_line" ]; do
    case $dray_line in *"$1"*) return 0 ;; esac
    dray_line=
  done
  return 1
}
# The files of this name in /proc that hold a text. The shell reads byte by byte and leaves out NULs.
dray_files() {
  case $dray_grep$1 in
    zenviron) grep -lszF "$2" /proc/[0-9]*/environ ;;
    zlimits | textlimits) grep -lsF "$2" /proc/[0-9]*/limits ;;
    *) for dray_file in /proc/[0-9]*/"$1"; do
      if dray_holds "$2" <"$dray_file"; then echo "$dray_file"; fi
    done ;;
  esac
}
dray_marked() {
  dray_files environ "$1"
  [ -n "$2" ] || return 0
  for dray_file in $(dray_files limits " $2 "); do
    # A process that has ended and was not waited for has limits, but no environment.
    IFS= read -r dray_line <"${dray_file%limits}stat" || continue
    case ${dray_line##*) } in [ZX]*) ;; *) echo "$dray_file" ;; esac
  done
}
# One round. Status 0 when anything was found.
dray_kill() {
  dray_hit=1
  for dray_process in $(dray_marked "$1" "$2"); do
    dray_process=${dray_process#/proc/}
    kill -9 "${dray_process%%/*}" && dray_hit=0
  done
  return "$dray_hit"
}
# Rounds until one finds nothing: a killed process may just have started another. Status 0 when anything was found.
dray_kill_all() {
  dray_any=1 dray_rounds=20
  while [ "$dray_rounds" != 0 ] && dray_kill "$1" "$2"; do
    dray_any=0 dray_rounds=$((dray_rounds - 1))
  done
  return "$dray_any"
}
