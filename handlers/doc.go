// Package handlers has what the handlers of its sub-packages share: the kinds
// with their defaults ([Kinds]), references to secrets ([ResolveSecret]), and
// the safe text of a result's detail ([Detail]).
//
// A kind's code is in the sub-package of its name: webhook, command, log. They
// import this package and package edge, and never each other. What assembles a
// node makes the handler with the sub-package's New and registers it with
// [Kind.Spec].
package handlers
