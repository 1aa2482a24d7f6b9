#!/bin/sh
# Build an environment of pinned packages in FOLDER, with another pyspark than the pinned one.
#     sh conf/spark_environment.sh VERSION FOLDER
# PyPI gives pyspark and the py4j that it asks for; the versions of all other packages are those of requirements.lock.
set -eu
version=$1 folder=$2
[ -e "$folder/.installed" ] && [ "$folder/.installed" -nt requirements.lock ] && exit 0
python=${PYTHON:-$(sh conf/python.sh)}
"$python" -m venv --clear "$folder"
pip="$folder/bin/pip --disable-pip-version-check"
sed -n '/^setuptools==/,/[^\\]$/p' requirements.lock >"$folder/setuptools.lock"
awk '/^[a-z]/ { skip = /^(pyspark|py4j)==/ } !skip' requirements.lock >"$folder/requirements.lock"
$pip install --quiet --no-deps --require-hashes -r "$folder/setuptools.lock"
$pip install --quiet --no-deps --require-hashes --no-build-isolation -r "$folder/requirements.lock"
$pip install --quiet --no-build-isolation "pyspark==$version"
$pip install --quiet --no-deps --no-build-isolation -e .
"$folder/bin/tiered-stream" warm --pyspark
touch "$folder/.installed"
