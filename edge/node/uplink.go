package node

import (
	"context"
	"errors"
	"fmt"

	"fencepost/edge"
	"fencepost/edge/config"
	"fencepost/edge/uplink"
)

// uplinks makes the uplinks of a configuration. Their probes keep to the same
// addresses as webhooks.
func uplinks(c *config.Config) ([]edge.Uplink, error) {
	var out []edge.Uplink
	var faults []error
	for _, u := range c.Uplinks {
		probe, err := newProbe(c, &u)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s:%d: uplink %q: %w", c.File, u.Line, u.Name, err))
			continue
		}
		out = append(out, edge.Uplink{Name: u.Name, Probe: probe, Interval: u.Interval, Timeout: u.Timeout})
	}
	return out, errors.Join(faults...)
}

func newProbe(c *config.Config, u *config.Uplink) (func(context.Context) error, error) {
	return uplink.New(uplink.Config{To: u.Probe, Control: probePolicy(c).Control})
}
