#!/bin/sh
# A first installation starts nothing: what the node does is said by a person
# first. An upgrade goes on with the new program.
set -e
if [ -f /etc/fencepost/fencepost.toml ]; then
	chgrp fencepost /etc/fencepost /etc/fencepost/fencepost.toml
fi
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
if [ "$1" = configure ] && [ -n "$2" ] || [ "$1" = 2 ]; then # deb: the old version; rpm: how many there are now
	systemctl try-restart fencepost.service
else
	echo 'fencepost: edit /etc/fencepost/fencepost.toml, then: systemctl enable --now fencepost'
fi
