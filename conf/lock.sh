#!/bin/sh
# Write the lock files again: the versions in them, with the hashes of every file of these versions in the index, for all
# platforms. Uses the index that pip is configured for.
set -eu

cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$(sh conf/python.sh)" -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check uv==0.13.9
index=$("$work/venv/bin/pip" config get global.index-url 2>/dev/null || true)
for lock in requirements.lock requirements-docs.lock requirements-release.lock requirements-manifests.lock requirements-kerberos.lock; do
    {
        grep '^#' "$lock"
        sed -n 's/^\([A-Za-z0-9][^ ]*==[^ ]*\).*/\1/p' "$lock" >"$work/versions.in"
        ${index:+env UV_DEFAULT_INDEX="$index"} "$work/venv/bin/uv" pip compile --quiet --no-deps --universal \
            --python-version 3.11 --generate-hashes --no-header --no-annotate "$work/versions.in"
    } >"$work/$lock"
    mv "$work/$lock" "$lock"
done
