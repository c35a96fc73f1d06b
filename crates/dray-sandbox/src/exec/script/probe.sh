# What is here.
ask() {
  rec home; printf %s "$HOME"
  rec cwd; pwd -P
  rec uid; id -u 2>/dev/null
  rec gid; id -g 2>/dev/null
  rec self; cat /proc/self/status 2>/dev/null
  rec passwd; cat /etc/passwd 2>/dev/null | head -c 65536
  rec free; df -Pk . 2>/dev/null
  rec tools
  for tool in base64 cat chmod cksum cp dd df find gzip head id ln ls mkdir mv od openssl perl python3 readlink \
    realpath rm rmdir sha256sum shasum stat tail tar uudecode uuencode wc; do
    if has "$tool"; then printf '%s ' "$tool"; fi
  done
  finish 0
}
answer ask "$@"
