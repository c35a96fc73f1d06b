# Digest of a regular file: path.
digest() {
  regular "$1" || return 0
  if choose_sha256 "$(size "$1" 2>/dev/null)"; then rec sha256; sha256_by "$sha256" <"$1"
  elif has cksum; then rec cksum; cksum <"$1"
  else refuse tool_missing; return 0
  fi
  finish "$?"
  rec size; size "$1"
}
answer digest "$@"
