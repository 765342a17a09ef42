#!/usr/bin/env bash
# Installs the real counterparts that the oracle tests talk to, into .oracles/ (and, for
# Debian packages, into the system). Running it again installs only what is missing.
set -euo pipefail
cd "$(dirname "$0")/../../.."
here=$PWD/.oracles
mkdir -p "$here/bin"

have() { command -v "$1" >/dev/null 2>&1; }
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

# Apache ZooKeeper and protoc, from Debian; Java and Maven where they are missing.
packages=()
[ -e /usr/share/java/zookeeper.jar ] || packages+=(zookeeper)
have protoc || packages+=(protobuf-compiler libprotobuf-dev)
# Curator's recipes are compiled when they are tested.
have javac || packages+=(default-jdk-headless)
have mvn || packages+=(maven)
have python3 || packages+=(python3 python3-venv)
if [ "${#packages[@]}" -gt 0 ]; then
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}"
fi

# jars NAME: what NAME-pom.xml lists, from Maven Central. Its .complete is the list that it was made of.
jars() {
  local pom=internal/testenv/oracle/$1-pom.xml
  if cmp -s "$pom" "$here/$1/.complete"; then return; fi
  rm -rf "${here:?}/$1"
  mvn -q -B -f "$pom" dependency:copy-dependencies -DoutputDirectory="$here/$1"
  cp "$pom" "$here/$1/.complete"
}

jars kafka
jars hdfs # Apache Hadoop's file system, in one process

# Apache Curator, from Maven Central.
if [ ! -e "$here/curator/.complete" ]; then
  rm -rf "$here/curator"
  mvn -q -B -f internal/testenv/oracle/curator-pom.xml dependency:copy-dependencies -DoutputDirectory="$here/curator"
  touch "$here/curator/.complete"
fi

# nats-server and the nats CLI, built from their pinned modules.
(cd internal/testenv/oracle/tools && GOFLAGS=-mod=mod go build -o "$here/bin/" github.com/nats-io/nats-server/v2 github.com/nats-io/natscli/nats)
# Consul likewise: 1.9.5 is the newest whose own modules its proxy has, too.
(cd internal/testenv/oracle/consul && GOFLAGS=-mod=mod go build -o "$here/bin/" github.com/hashicorp/consul)

# venv NAME REQUIREMENTS: a Python environment with what the file lists, from PyPI. Its .complete is the
# list that it was made of, so that another list installs what is new in it.
venv() {
  local dir=$here/$1 list=internal/testenv/oracle/$2
  if cmp -s "$list" "$dir/.complete"; then return; fi
  [ -e "$dir/.complete" ] || rm -rf "$dir"
  rm -f "$dir/.complete"
  [ -x "$dir/bin/pip" ] || python3 -m venv "$dir"
  "$dir/bin/pip" install -q --disable-pip-version-check -r "$list"
  cp "$list" "$dir/.complete"
}

venv python requirements.txt        # kazoo and TensorFlow with the serving API
venv kazoo kazoo-requirements.txt   # kazoo with its own tests and what they need
venv triton triton-requirements.txt # Triton's client of the open inference protocol
echo "The oracles are in $here."
