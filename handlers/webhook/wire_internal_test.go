package webhook

import (
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// Once it has been said that nothing was written, nothing is written.
func TestSealedConnectionWritesNothing(t *testing.T) {
	t.Parallel()
	client, server := net.Pipe()
	got := make(chan []byte, 1)
	go func() {
		b, _ := io.ReadAll(server)
		got <- b
	}()
	c := &conn{Conn: client}
	require.False(t, c.seal())
	_, err := c.Write([]byte("late"))
	require.NoError(t, client.Close())
	require.Empty(t, <-got)
	require.ErrorIs(t, err, errSealed)
}

func TestSealKnowsWhatWasWritten(t *testing.T) {
	t.Parallel()
	client, server := net.Pipe()
	go func() { _, _ = io.Copy(io.Discard, server) }()
	c := &conn{Conn: client}
	_, err := c.Write([]byte("handshake"))
	require.NoError(t, err)
	c.begin()
	_, err = c.Write([]byte("request"))
	require.NoError(t, err)
	require.NoError(t, client.Close())
	_, err = c.Write([]byte("more"))
	require.Error(t, err)
	require.True(t, c.seal(), "a later write that fails does not undo the first")
}
