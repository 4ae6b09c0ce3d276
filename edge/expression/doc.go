// Package expression is the one language of a configuration's `when`, `key` and
// `${...}`: the grammar of github.com/expr-lang/expr, parsed by it, and a small
// evaluation of our own with these promises:
//
//   - it ends: each evaluation has [MaxSteps] steps and [MaxMadeBytes] bytes, and
//     all evaluations on one event together [MaxEventSteps];
//   - it reads the event and nothing else: no clock, environment, file or network,
//     and it changes nothing, so equal events give equal bytes;
//   - numbers are exact decimals: no digit of a JSON number is lost when it is
//     shown or compared;
//   - an error is never a value: what is missing, null where a text is made, or of
//     the wrong type is an error, which names the place and never the data.
//
// [Compile] makes an [Expr], [CompileTemplate] a [Template]; both are immutable and
// may be used from many goroutines. An [Env] is one event as expressions see it,
// for one goroutine; its data is decoded when first asked for. docs/expressions.md
// describes the language for those who write it.
package expression

// Limits of expressions.
const (
	MaxSourceBytes = 4 << 10    // text of one expression, or of one template
	MaxSteps       = 1_000_000  // steps of one evaluation
	MaxEventSteps  = 10_000_000 // steps of all evaluations on one [Env]
	MaxMadeBytes   = 4 << 20    // texts and lists that one evaluation makes
	MaxDigits      = 1000       // digits of a number that is compared or calculated with
	MaxDepth       = 64         // nesting of JSON data
	MaxValues      = 1_000_000  // values in JSON data
)

// Names are the names that an expression may use, in the order to show them.
const Names = "id, source, type, subject, time, datacontenttype, ext and data"
