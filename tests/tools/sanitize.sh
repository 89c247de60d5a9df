#!/usr/bin/env bash
# Tests of the compiled code under AddressSanitizer and UBSan: sanitize.sh PYTHON. Builds the libraries in the checkout with both, runs
# the tests that reach them, and puts the installed ones back. Says that it skipped where gcc or its libraries are not there.
set -euo pipefail
cd "$(dirname "$0")/../.."

python=$1
options=(-O1 -g -shared -fPIC -std=c11 -fvisibility=hidden -ffp-contract=off -fno-omit-frame-pointer)
asan=$(gcc -print-file-name=libasan.so 2> /dev/null) || true
if [[ ! $asan = /* ]]; then
    echo "no gcc with AddressSanitizer here: the compiled code was not tested under it"
    exit 0
fi

kept=$(mktemp -d)
restore() {
    (cd "$kept" && find . -name '*.so') | while read -r library; do mv "$kept/$library" "$library"; done
    rm -rf "$kept"
}
trap restore EXIT
shopt -s globstar
for source in nsys_pp/**/*.c; do
    library=$(dirname "$source")/lib$(basename "$source" .c).so
    mkdir -p "$kept/$(dirname "$library")"
    cp "$library" "$kept/$library"
    gcc "${options[@]}" -fsanitize=address,undefined -fno-sanitize-recover=all "$source" -o "$library.new" -lm
    mv "$library.new" "$library"
done

# Python itself leaks at its end on purpose; what it loads later finds the sanitizer's allocator in place.
LD_PRELOAD=$asan ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 "$python" -m pytest -q -p no:cacheprovider \
    tests/read/test_sqlite.py tests/read/test_errors.py tests/alignment tests/output/test_packing.py
