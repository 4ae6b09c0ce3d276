#!/bin/sh
# The node is stopped when the package goes, not when it is replaced.
set -e
[ -d /run/systemd/system ] || exit 0
if [ "$1" = remove ] || [ "$1" = 0 ]; then # deb; rpm: how many are left
	systemctl disable --now fencepost.service
fi
