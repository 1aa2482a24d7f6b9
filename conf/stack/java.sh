#!/bin/sh
# Look for a Java that runs Spark 4.2 and Kafka 4.3. If there is none, install one as root on Debian.
set -eu

package=default-jre-headless  # Java 17 in Debian 12, 21 in Debian 13

new_enough() {
    java=${JAVA_HOME:+$JAVA_HOME/bin/}java
    version=$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)
    [ "${version:-0}" -ge 17 ]
}

if new_enough; then
    exit 0
fi
if [ -z "${JAVA_HOME:-}" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "No Java 17 or newer here: installing $package"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $package
    new_enough && exit 0
fi
cat >&2 <<MESSAGE
Java 17 or newer is needed, and '${JAVA_HOME:+$JAVA_HOME/bin/}java' is not one${version:+ (it is version $version)}.
Install a Java runtime (Debian: $package, Fedora: java-21-openjdk-headless), or set JAVA_HOME to one.
MESSAGE
exit 1
