package config

import (
	"time"

	"fencepost/edge/expression"
	"fencepost/edge/route"
)

func readRoute(t *table) Route {
	r := Route{Name: readName(t), Type: "*", Source: "*", Subject: "*", When: "true", Line: t.doc.line(t.path)}
	for _, p := range []struct {
		key string
		to  *string
	}{{"type", &r.Type}, {"source", &r.Source}, {"subject", &r.Subject}} {
		if s, ok := t.text(p.key, checkPattern); ok {
			*p.to = s
		}
	}
	if s, ok := t.text("when", checkWhen); ok {
		r.When = s
	}
	r.Handler, _ = t.text("handler", func(s string) (string, string) {
		if !validName(s) {
			return "not the name of a handler", "the name of a [[handler]] of this file"
		}
		return "", ""
	})
	if !t.has("handler") {
		t.fault("", "handler is missing", "the name of a [[handler]] of this file")
	}
	if s, ok := t.text("key", checkKey); ok {
		r.Key = &s
	}
	if d, ok := t.duration("ttl_s", time.Second, 0, 365*secondsPerDay); ok {
		r.TTL = d
	}
	t.unknown()
	return r
}

func checkPattern(s string) (problem, allowed string) {
	if err := route.CheckPattern(s); err != nil {
		return err.Error(), `1 to 512 bytes without control characters; * stands for any run of characters`
	}
	return "", ""
}

func checkKey(s string) (problem, allowed string) {
	if expression.IsTemplate(s) {
		return checkTemplate(s, expression.Key)
	}
	if err := route.CheckKey(s); err != nil {
		return err.Error(), `"subject", "source", "type", "id", the name of an extension such as "partitionkey", "" for one line, or a text with ${...} such as "${data.till}"`
	}
	return "", ""
}
