//go:build !linux

package api

import "net"

// peerOf does not know here; the modes of the socket file alone keep others out.
func peerOf(net.Conn) (peer, bool, error) { return peer{}, false, nil }
