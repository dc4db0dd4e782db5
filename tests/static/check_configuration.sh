#!/bin/sh
# SPDX-License-Identifier: MIT
# -DCONV_STATIC=ON finds its libraries and links the program statically and position-independently, of
# the same sources of ours as any other build. What comes of that is conv_static_program's to test.
#   check_configuration.sh CMAKE REPOSITORY
set -eu
cmake=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$cmake" -S "$2" -B "$work" -G "Unix Makefiles" -DCMAKE_BUILD_TYPE=Release -DCONV_STATIC=ON -DCONV_CUDA=OFF \
    -DCONV_TESTS=OFF >"$work/messages" 2>&1 || { cat "$work/messages" && exit 1; }
link=$(cat "$work/CMakeFiles/conv.dir/link.txt")
case $link in
*" -static-pie "*libpng*.a*) ;;
*) echo "not linked statically: $link" && exit 1 ;;
esac
case $link in
*.so*) echo "linked with a shared library: $link" && exit 1 ;;
esac
echo "linked statically"
