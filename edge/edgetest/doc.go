// Package edgetest helps to test programs that embed the engine, and the engine
// itself. It has
//
//   - [Model], an [edge.Store] in memory: an independent restatement of the
//     rules of a delivery, written a second time by hand so that it can be the
//     oracle of the durable store. It waits on channels and timers only, so it
//     works inside testing/synctest bubbles;
//   - [CheckInvariants] and [History], which judge what a store did;
//   - [Conformance], the tests that every store must pass;
//   - [Script], [Events] and [Tap], with which a test plays a handler, makes
//     input and waits for an event instead of for a time.
//
// Nothing here is meant for production: a Model forgets all when the process
// ends.
package edgetest
