#!/bin/sh
# Look for known vulnerabilities of the packages in the lock files. The status is 1 if there are any. If the vulnerability
# service cannot be reached within 40 seconds, this program reports that, and the status is 0.
set -eu

cd "$(dirname "$0")/.."
python=$(sh conf/python.sh)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
timeout --kill-after=5 40 sh -eu -c '
    "$1" -m venv "$2/venv"
    "$2/venv/bin/pip" install --quiet --disable-pip-version-check pip-audit==2.10.1
    for lock in requirements.lock requirements-docs.lock requirements-release.lock requirements-manifests.lock requirements-kerberos.lock; do  # one by one, because several may pin the same package
        "$2/venv/bin/pip-audit" --requirement "$lock" --disable-pip --require-hashes --timeout 10 \
            --progress-spinner off --format json --output "$2/$lock.json" || true
    done
' audit "$python" "$work" >"$work/log" 2>&1 || true

"$python" - "$work"/requirements.lock.json "$work"/requirements-docs.lock.json "$work"/requirements-release.lock.json \
    "$work"/requirements-manifests.lock.json "$work"/requirements-kerberos.lock.json <<'CHECK'
import json, pathlib, sys

found = set()
for report in map(pathlib.Path, sys.argv[1:]):
    try:
        packages = json.loads(report.read_text())["dependencies"]
    except (OSError, ValueError):
        packages = []
    known = [package for package in packages if "vulns" in package]
    held = {(package["name"], package["version"], each["id"]) for package in known for each in package["vulns"]}
    if not known:
        print(f"pip-audit: {report.stem} is not audited, because the vulnerability service cannot be reached from here")
    elif not held:
        print(f"pip-audit: no vulnerability is known for {len(known)} of {len(packages)} packages of {report.stem}")
    found |= held
for name, version, advisory in sorted(found):
    print(f"pip-audit: {name} {version} has {advisory}")
sys.exit(1 if found else 0)
CHECK
