#!/usr/bin/env bash
# Stands where go-zookeeper's tests start ZooKeeper: `zkServer.sh start-foreground zoo.cfg`.
# The test that runs them starts a server for the file, which ends with this process.
exec 3<>"/dev/tcp/127.0.0.1/$MONOLITH_SUITE_PORT"
printf '%s\n' "$2" >&3
exec cat <&3 >/dev/null
