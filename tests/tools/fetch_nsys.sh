#!/bin/sh
# Get a real nsys (target and host) into a folder of its own, and print its path.
#
#     tests/tools/fetch_nsys.sh FOLDER [2023.4|2024.2]
#
# For tests only: they compare with NVIDIA's answers where NSYS_PP_NSYS (2023.4, the default) and
# NSYS_PP_NSYS_NEWER (2024.2) name one. Both come from Debian's non-free archive, from the suite that has
# the version; the machine's own package sources, settings and packages stay as they are.
# Run again, it finds what is there. Where it cannot work it says why and ends with status 3.
set -eu

case ${2:-2023.4} in
    2023.4) suite=trixie packages="nsight-systems-target nsight-systems" ;;
    2024.2) suite=experimental packages="nsight-systems-target nsight-systems libarrow500 libparquet500" ;;
    *) echo "fetch_nsys: known versions are 2023.4 and 2024.2, not \`$2\`" >&2 && exit 2 ;;
esac
helpers="libelf1 libpfm4 libssh-4 libgssapi-krb5-2 libkrb5-3 libk5crypto3 libkrb5support0 libcom-err2 libkeyutils1 libsqlite3-0"
folder=${1:?usage: fetch_nsys.sh FOLDER [VERSION]}

fail() {
    echo "fetch_nsys: $1" >&2
    exit 3
}

[ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || fail "nsys is fetched for Linux on x86-64 only"
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
root=$folder/root
libraries=$root/usr/lib/x86_64-linux-gnu
target=$libraries/nsight-systems
host=$root/usr/lib/nsight-systems/host-linux-x64
nsys=$target/target-linux-x64/nsys

if [ -e "$folder/complete" ] && "$nsys" --version >/dev/null 2>&1; then
    echo "$nsys"
    exit 0
fi
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || fail "apt-get and dpkg-deb are needed"

# The archive that this machine uses anyway, in either form that apt knows.
archive=$(awk '/^URIs:/ { print $2; exit }' /etc/apt/sources.list.d/*.sources 2>/dev/null || true)
[ -n "$archive" ] || archive=$(awk '$1 == "deb" { for (i = 2; i <= NF; i++) if ($i ~ /^https?:/) { print $i; exit } }' \
    /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null || true)
[ -n "$archive" ] || fail "this machine names no package archive"
keys=/usr/share/keyrings/debian-archive-keyring.gpg
[ -r "$keys" ] || fail "Debian's keys are needed (package debian-archive-keyring)"

apt=$folder/apt
mkdir -p "$apt/lists/partial" "$apt/archives/partial" "$apt/debs"
# nsys itself from $suite; what few machines have of what it needs from the machine's own release, so that it
# fits its C library. Lists of our own: the machine's may never have been fetched.
release=$(. /etc/os-release && echo "${VERSION_CODENAME:-$suite}")
{
    echo "deb [arch=amd64 signed-by=$keys] $archive $suite non-free"
    echo "deb [arch=amd64 signed-by=$keys] $archive $release main"
} >"$apt/sources.list"
set -- -qq -o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=/dev/null \
    -o "Dir::State::lists=$apt/lists" -o "Dir::Cache=$apt" -o APT::Architecture=amd64 -o APT::Sandbox::User=root
{
    apt-get "$@" update || fail "the package archive does not answer"
    (cd "$apt/debs" && apt-get "$@" download $packages) || fail "Debian $suite has no $packages"
    (cd "$apt/debs" && for package in $helpers; do
        apt-get "$@" download "$package" ||
            echo "fetch_nsys: no package $package; nsys may do without" >&2
    done)
    for package in "$apt"/debs/*.deb; do
        dpkg-deb -x "$package" "$root" || fail "$package cannot be unpacked"
    done
} >&2

# What an unpacked tree lacks: recipes want a folder that Debian left out, `nsys stats` looks for its Python
# modules on the host's side, and the two sides look for each other where they lie once installed.
mkdir -p "$target/target-linux-x64/python/packages/nsys_recipe/third_party"
ln -sfn ../../nsight-systems/host-linux-x64 "$target/host-linux-x64"
mkdir -p "$target/host-linux-x64/python/lib"
cp "$target"/target-linux-x64/python/lib/*.py "$target/host-linux-x64/python/lib/"
for library in "$libraries"/*.so.* "$root"/lib/x86_64-linux-gnu/*.so.*; do
    [ -e "$library" ] && [ ! -d "$library" ] || continue
    name=$(basename "$library")
    for side in "$host" "$target/target-linux-x64"; do
        # Never in the way of a library that nsys brings, nor of one that the machine has; but recipes of 2024.2
        # open this one by its path.
        [ -e "$side/$name" ] || { [ "$name" != libsqlite3.so.0 ] && ldconfig -p | grep -q "$name "; } ||
            ln -sfn "$library" "$side/$name"
    done
done

"$nsys" --version >/dev/null 2>&1 || fail "nsys was fetched, but does not run here: $("$nsys" --version 2>&1 | head -n 1)"
: >"$folder/complete"
rm -rf "$apt"
echo "$nsys"
