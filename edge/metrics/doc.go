// Package metrics shows a node to Prometheus. A scrape reads a table of counters,
// a few index entries and what the engine holds in memory: it never counts rows,
// so it costs the same whatever the database holds. What happens often is counted
// by atomic additions, without a lock.
//
// Labels come from the configuration (handlers, uplinks) and from fixed sets
// (states, outcomes, routes of the listener), never from an event or a request:
// no producer can make a series. docs/observability.md lists every metric, and a
// test keeps that list and this package equal.
package metrics
