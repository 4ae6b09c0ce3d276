#!/bin/sh
# The database stays: it may hold what was not delivered.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
if [ "$1" = purge ] || [ "$1" = 0 ]; then
	[ ! -d /var/lib/fencepost ] || echo 'fencepost: the database stays in /var/lib/fencepost; remove it when you do not need it'
fi
