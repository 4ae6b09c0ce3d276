package route

import (
	"errors"
	"fmt"

	"fencepost/edge"
)

// CheckKey says what is wrong with the name of a key attribute; nil when nothing
// is. "" is right: one line for the whole handler.
func CheckKey(name string) error {
	switch name {
	case "", "id", "source", "type", "subject":
		return nil
	case "specversion", "time", "datacontenttype", "data":
		return errors.New("the attribute " + name + " cannot be a key")
	}
	const limit = 20
	if len(name) > limit {
		return fmt.Errorf("the name of the attribute has %d bytes, the limit is %d", len(name), limit)
	}
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return errors.New("not the name of an attribute: lower-case letters and digits only")
		}
	}
	return nil
}

// render is the target key of e by a route's key, or the reason why there is
// none. nil is the default rule.
func render(name *string, e *edge.Event) (key, fault string) {
	if name == nil {
		return bounded("the default key", edge.DefaultKey(e))
	}
	switch *name {
	case "":
		return "", ""
	case "id":
		key = e.ID
	case "source":
		key = e.Source
	case "type":
		key = e.Type
	case "subject":
		key = e.Subject
	default:
		key = e.Extensions[*name]
	}
	if key == "" {
		return "", "key: the event has no " + *name
	}
	return bounded("key: "+*name, key)
}

// bounded refuses a key that is too long, and the reserved one: no event may put
// itself among the deliveries whose route failed.
func bounded(what, key string) (string, string) {
	if len(key) > edge.MaxNameBytes {
		return "", fmt.Sprintf("%s has %d bytes, the limit is %d", what, len(key), edge.MaxNameBytes)
	}
	if key == edge.RouteErrorKey {
		return "", fmt.Sprintf("%s is %q, which is reserved", what, key)
	}
	return key, ""
}
