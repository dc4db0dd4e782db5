#!/bin/bash
# One shard of the images below an S3 prefix:    s3.sh s3://BUCKET/IN s3://BUCKET/OUT I N
# AWS_ENDPOINT_URL selects another server than Amazon's. An image is one pipe, from bucket to
# bucket. `aws s3 cp -` would also upload the empty output of an image that failed, so the upload
# begins only after its first byte; a connection that breaks leaves no object.
bucket=${1#s3://} prefix=${bucket#*/} bucket=${bucket%%/*} number=0 failed=0
set -o pipefail

upload_unless_empty() {
    IFS= read -r -N 1 first || return 1 # PNG begins with a byte that no shell alters
    { printf %s "$first"; cat; } | aws s3 cp --quiet - "$1"
}

objects=$(aws s3api list-objects-v2 --bucket "$bucket" --prefix "$prefix/" --query 'Contents[].Key' --output text) || exit
while read -r key; do
    # The shard of an object is that of its number in the listing, which S3 sorts.
    ((number++ % $4 == $3)) || continue
    name=${key#"$prefix/"}
    if ! aws s3 cp --quiet "$1/$name" - | conv emboss - - | LC_ALL=C upload_unless_empty "$2/$name"; then
        echo "$name: failed" >&2
        failed=1
    fi
done < <(tr '\t' '\n' <<<"$objects" | grep -i '\.png$')
exit $failed
