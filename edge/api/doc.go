// Package api is how events and operators reach a node: the HTTP intake for
// producers on the network, the same intake and the operator's calls on a unix
// socket for the command line, and the client of that socket.
//
// # The network listener
//
// [NewHandler] serves the routes of [NetworkRoutes] and nothing else.
//
//	POST /v1/events   takes one event or a batch; needs the bearer token
//	GET  /metrics     the metrics; needs a token of its own
//	GET  /healthz     200 while the store answers, else 503
//	GET  /readyz      200 while the node takes events and dispatches them, else 503;
//	                  a node on hold takes them and says "dispatch": "on hold: <kind>"
//
// An event comes in one of four forms (CloudEvents 1.0, HTTP protocol binding
// and JSON format), told apart by Content-Type and headers:
//
//   - batch: Content-Type application/cloudevents-batch+json, an array of at
//     most 1,000 events and 4 MiB; an empty array is valid
//   - structured: Content-Type application/cloudevents+json
//   - binary: any other Content-Type with ce- headers
//   - plain: any other request; type (required), source, subject and id are
//     query parameters, source is "/http" when none is given, and id is the
//     Idempotency-Key header when there is one, else random
//
// The bytes of the data are kept exactly as received.
//
// # Answers
//
// One event: 202 when it is new, 200 when the same source and id were accepted
// before, and the body is a [Receipt]. Both mean that the event is stored: no
// answer of the 2xx class is sent before the commit. 409 says that the source
// and id are taken by other content.
//
// A request with an Idempotency-Key, in any form, is carried out once: see
// [HeaderReplayed]. The same request gets the stored status and body again,
// another one under the key 422.
//
// A batch: a malformed event refuses the whole batch with 400, and nothing is
// stored. Otherwise the body is an array of [BatchItem] in the order of the
// request, and the status is 202 when at least one event is new, 200 when none
// is, and 207 when at least one was refused, whose item then carries the
// status and the problem; the others are stored.
//
// Every error is a problem document (RFC 9457, application/problem+json) with a
// stable member code; see [Problem]. Faults of fields are in its member errors.
// A storage fault is always 503; a full backlog or disk is 507.
package api
