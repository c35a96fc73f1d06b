# SHA-256 of stdin. openssl and python3 use the instructions of the processor for it, which sha256sum of GNU and of
# BusyBox before 1.36 do not: they are six times faster, which repays their start from 8 MiB on. They are used only if
# they compute the digest of an empty input, because a program that does not run must not fail a transfer.
sha256_by() {
  case $1 in
    sha256sum) sha256sum ;;
    shasum) shasum -a 256 ;;
    openssl) openssl dgst -sha256 -r ;;
    python3) python3 -c 'import hashlib, sys
h = hashlib.sha256()
for d in iter(lambda: sys.stdin.buffer.read(262144), b""): h.update(d)
print(h.hexdigest())' ;;
  esac
}
# Chooses the program for this many bytes; fails where there is none.
choose_sha256() {
  if [ "${1:-0}" -ge 8388608 ]; then
    for sha256 in openssl python3; do
      has "$sha256" || continue
      case $(sha256_by "$sha256" </dev/null 2>/dev/null) in
        e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855*) return 0 ;;
      esac
    done
  fi
  for sha256 in sha256sum shasum openssl python3; do
    if has "$sha256"; then return 0; fi
  done
  return 1
}
