#!/bin/sh
# The user of the node, before its files come.
set -e
if getent passwd fencepost >/dev/null && getent group fencepost >/dev/null; then
	exit 0
fi
if command -v systemd-sysusers >/dev/null 2>&1; then
	echo 'u fencepost - "fencepost node" /var/lib/fencepost /usr/sbin/nologin' | systemd-sysusers -
else
	getent group fencepost >/dev/null || groupadd --system fencepost
	useradd --system --gid fencepost --home-dir /var/lib/fencepost --no-create-home --shell /usr/sbin/nologin --comment 'fencepost node' fencepost
fi
