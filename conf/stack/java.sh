#!/bin/sh
# Is there a Java that Spark 4.2 and Kafka 4.3 run on? If not, and this is root on a Debian, install one.
set -eu

new_enough() {
    java=${JAVA_HOME:+$JAVA_HOME/bin/}java
    version=$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)
    [ "${version:-0}" -ge 17 ]
}

if new_enough; then
    exit 0
fi
if [ -z "${JAVA_HOME:-}" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "No Java 17 or newer here: installing openjdk-17-jre-headless"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends openjdk-17-jre-headless
    new_enough && exit 0
fi
cat >&2 <<EOF
Java 17 or newer is needed, and '${JAVA_HOME:+$JAVA_HOME/bin/}java' is not one${version:+ (it is version $version)}.
Install a Java runtime (Debian: openjdk-17-jre-headless, Fedora: java-17-openjdk-headless), or set JAVA_HOME to one.
EOF
exit 1
