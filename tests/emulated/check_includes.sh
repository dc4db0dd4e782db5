#!/bin/sh
# SPDX-License-Identifier: MIT
# Every translated .cu file has to include what it uses: elsewhere several are compiled as one.
# check_includes.sh TRANSLATED COMPILER [OPTION...]
translated=$1
shift
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
failed=0

# The declarations of the emulation, which take most of the time, are compiled once.
printf '#include <cuda_runtime.h>\n' >"$scratch/all.h"
"$@" -x c++-header "$scratch/all.h" -o "$scratch/all.h.gch" || exit 1

compiles_alone() {
    "$@" -include "$scratch/all.h" -fsyntax-only -x c++ "$file"
}

for file in $(find "$translated" -name '*.cu.cpp'); do
    compiles_alone "$@" || failed=1
done
# A copy of it without its first include must not compile.
grep -v '^#include "kernels/' "$file" >"$scratch/planted.cpp"
file=$scratch/planted.cpp
if compiles_alone "$@" 2>/dev/null; then
    echo "a file that includes too little is not found" >&2
    failed=1
fi
exit $failed
