#!/bin/sh
# Print the newest supported Python on the PATH that runs and can make a virtual environment.
# With an argument, print all of them, newest first, one per line. If there is none, print the package to install.
set -eu

oldest=11
newest=14
found=
without_venv=

# A launcher may exist and not run (pyenv's shims), or run another version than its name says.
version_of() {
    "$1" -c 'import sys; print(sys.version_info.minor if sys.version_info[0] == 3 else 0)' 2>/dev/null || echo 0
}

minor=$newest
while [ "$minor" -ge "$oldest" ]; do
    for name in "python3.$minor" python3; do
        if command -v "$name" >/dev/null && [ "$(version_of "$name")" = "$minor" ]; then
            if "$name" -c 'import ensurepip, venv' 2>/dev/null; then
                found=$("$name" -c 'import sys; print(sys.executable)')
                printf '%s\n' "$found"
                [ $# -gt 0 ] || exit 0
                break
            fi
            without_venv="3.$minor"
        fi
    done
    minor=$((minor - 1))
done

[ -z "$found" ] || exit 0
if [ -n "$without_venv" ]; then
    echo "Python $without_venv is here without its module venv: install python$without_venv-venv (Debian: apt-get install python3-venv)" >&2
else
    echo "No Python 3.$oldest to 3.$newest on the PATH: install one, or name it with 'make PYTHON=/path/to/python3'" >&2
fi
exit 1
