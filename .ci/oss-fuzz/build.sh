#!/bin/bash -eu
# Builds the targets of tests/fuzz as they are, with the compiler, sanitizer and engine that OSS-Fuzz sets, and packs
# their seeds. To try it: SRC=FOLDER_ABOVE_CONV WORK=/tmp/work OUT=/tmp/out CC=clang CXX=clang++ SANITIZER=address
# CFLAGS="-O1 -g1 -fsanitize=address,fuzzer-no-link" .ci/oss-fuzz/build.sh [TARGET...]
mkdir -p "$OUT"
# Where the targets run there are no libraries: those of TIFF and WebP, and what they need, are linked statically.
libraries=$(pkg-config --static --libs-only-l libtiff-4 libwebp | sed -E 's/-l(m|pthread)( |$)/ /g')
tiff=OFF
if pkg-config --atleast-version=4.5 libtiff-4; then
    tiff=ON
fi
cmake -S "$SRC/conv" -B "$WORK/conv" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_C_COMPILER="$CC" -DCMAKE_CXX_COMPILER="$CXX" \
    -DCONV_CUDA=OFF -DCONV_STATIC=ON -DCONV_TIFF=$tiff -DCONV_WEBP=ON "-DCMAKE_C_STANDARD_LIBRARIES=-Wl,-Bstatic $libraries -lstdc++ -Wl,-Bdynamic -lm" \
    -DCONV_FUZZ=COMPARES -DCONV_TESTS=ON
targets=("$@")
if [[ $# -eq 0 ]]; then
    mapfile -t targets < <(cd "$SRC/conv/tests/fuzz" && printf "%s\n" fuzz_*.c | sed 's/\.c$//')
    [[ $tiff == ON ]] || mapfile -t targets < <(printf "%s\n" "${targets[@]}" | grep -v tiff)
fi
cmake --build "$WORK/conv" --target "${targets[@]}"
for target in "${targets[@]}"; do
    cp "$WORK/conv/tests/fuzz/$target" "$OUT/"
    zip -qjr "$OUT/${target}_seed_corpus.zip" "$SRC/conv/tests/fuzz/corpus/${target#fuzz_}"
    printf '[libfuzzer]\nmax_len = 4096\ntimeout = 600\n' >"$OUT/$target.options"
done
