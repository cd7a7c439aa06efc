#!/bin/sh
# Installs session-checkpoint from a release archive, after its checksum was verified.
#   BASE     where the archives are: a URL or a directory
#   VERSION  which one; PREFIX where to (default ~/.local)
set -eu
version=${VERSION:-1.0.0}
base=${BASE:?"set BASE to where the release archives are"}
prefix=${PREFIX:-$HOME/.local}
case $(uname -s) in
  Linux) system=unknown-linux-musl ;;
  Darwin) system=apple-darwin ;;
  *) echo "there is no archive for $(uname -s); with Rust: cargo install session-checkpoint" >&2; exit 1 ;;
esac
case $(uname -m) in
  x86_64 | amd64) machine=x86_64 ;;
  aarch64 | arm64) machine=aarch64 ;;
  *) echo "there is no archive for $(uname -m); with Rust: cargo install session-checkpoint" >&2; exit 1 ;;
esac
name=session-checkpoint-$version-$machine-$system
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fetch() {
  case $base in
    http://* | https://*) curl --proto '=https' --tlsv1.2 -fsSL "$base/$1" -o "$work/$1" ;;
    *) cp "$base/$1" "$work/$1" ;;
  esac
}
fetch "$name.tar.gz"
fetch "$name.tar.gz.sha256"
cd "$work"
if command -v sha256sum >/dev/null; then sha256sum -c "$name.tar.gz.sha256" >/dev/null; else shasum -a 256 -c "$name.tar.gz.sha256" >/dev/null; fi ||
  { echo "the checksum of $name.tar.gz is wrong; nothing was installed" >&2; exit 1; }
tar -xzf "$name.tar.gz"
mkdir -p "$prefix/bin" "$prefix/share/man/man1" "$prefix/share/bash-completion/completions"
for program in session-checkpointd session-checkpoint-mcp; do
  # By a new name and a rename: one that runs is not disturbed.
  cp "$name/$program" "$prefix/bin/.$program.new"
  chmod 755 "$prefix/bin/.$program.new"
  mv -f "$prefix/bin/.$program.new" "$prefix/bin/$program"
done
cp "$name/session-checkpointd.1" "$prefix/share/man/man1/"
cp "$name/session-checkpointd.bash" "$prefix/share/bash-completion/completions/session-checkpointd"
echo "installed $version in $prefix/bin; try: $prefix/bin/session-checkpointd demo"
