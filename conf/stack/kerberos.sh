#!/bin/sh
# Look for MIT's Kerberos KDC and the Python package gssapi, which has no wheel. If they are missing, install them as root
# on Debian. Tests of Kerberos are skipped without them, so this script fails only where an installation fails.
# Usage: kerberos.sh PYTHON
set -eu

python=$1
packages='krb5-kdc krb5-admin-server krb5-user libkrb5-dev gcc libc6-dev'
PATH=$PATH:/usr/sbin:/usr/local/sbin

has_kdc() {
    command -v krb5kdc >/dev/null && command -v kadmin.local >/dev/null && command -v kinit >/dev/null
}

has_gssapi() {
    "$python" -c 'import gssapi' 2>/dev/null
}

if ! has_kdc || { ! has_gssapi && ! command -v krb5-config >/dev/null; }; then
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        echo "No Kerberos KDC here, so its tests are skipped (Debian: $packages)"
        exit 0
    fi
    echo "No Kerberos KDC here: installing $packages"
    apt-get update -qq
    # The KDC of a test is a process of its own: no service starts, and no question about a realm is asked.
    DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq --no-install-recommends $packages >/dev/null
fi
if ! has_gssapi; then
    lock=$(dirname "$0")/../../requirements-kerberos.lock
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    sed -n '/^cython==/,/[^\\]$/p' "$lock" >"$work/cython.lock"
    sed '/^cython==/,/[^\\]$/d' "$lock" >"$work/gssapi.lock"
    pip="$python -m pip --quiet --disable-pip-version-check"
    $pip install --no-deps --require-hashes --target "$work/cython" -r "$work/cython.lock"
    # Without optimization it builds in half the time.
    CFLAGS=-O0 PYTHONPATH=$work/cython $pip install --no-deps --require-hashes --no-build-isolation -r "$work/gssapi.lock"
fi
