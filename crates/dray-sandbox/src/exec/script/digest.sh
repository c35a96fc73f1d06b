# Digest of a regular file: path.
digest() {
  regular "$1" || return 0
  if has sha256sum; then rec sha256; sha256sum <"$1"
  elif has shasum; then rec sha256; shasum -a 256 <"$1"
  elif has openssl; then rec sha256; openssl dgst -sha256 -r <"$1"
  elif has python3; then rec sha256; python3 -c 'import hashlib, sys
h = hashlib.sha256()
for d in iter(lambda: sys.stdin.buffer.read(65536), b""): h.update(d)
print(h.hexdigest())' <"$1"
  elif has cksum; then rec cksum; cksum <"$1"
  else refuse tool_missing; return 0
  fi
  finish "$?"
  rec size; size "$1"
}
answer digest "$@"
