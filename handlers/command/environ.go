package command

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"fencepost/edge"
	"fencepost/handlers"
)

// Variables that mark a process as ours.
const (
	ownerVariable    = "FENCEPOST_OWNER"
	deliveryVariable = "FENCEPOST_DELIVERY"
	fenceVariable    = "FENCEPOST_FENCE"
	reservedPrefix   = "FENCEPOST_"
)

// DefaultPath is PATH for programs unless Config.Env sets it.
const DefaultPath = "/usr/local/bin:/usr/bin:/bin"

// Variables are the attributes of an execution as a program gets them, sorted
// by name. All are always set; an attribute that is absent is empty.
//
//	FENCEPOST_ATTEMPT       number of the attempt, from 1
//	FENCEPOST_CONTENT_TYPE  content type of the data
//	FENCEPOST_DELIVERY      public id of the delivery
//	FENCEPOST_EVENT         public id of the event
//	FENCEPOST_EVENT_ID      CloudEvents id
//	FENCEPOST_EVENT_SOURCE  CloudEvents source
//	FENCEPOST_EVENT_SUBJECT CloudEvents subject
//	FENCEPOST_EVENT_TIME    CloudEvents time
//	FENCEPOST_EVENT_TYPE    CloudEvents type
//	FENCEPOST_FENCE         grows with each execution
//	FENCEPOST_KEY           idempotency key
//	FENCEPOST_OWNER         random id of the node's opening of its store
//	FENCEPOST_ROUTE         name of the route
//	FENCEPOST_TARGET        handler:key
//
// Where Config.Env does not set them, it also gets the trace of the attempt:
// TRACEPARENT and, if there is one, TRACESTATE (W3C Trace Context, in the form
// that OpenTelemetry reads from an environment).
//
// Beside them and Config.Env a program gets PATH ([DefaultPath]), HOME (the
// node's, else /) and LANG (the node's, else C.UTF-8); on Windows PATH,
// SYSTEMROOT and TEMP as the node has them. Nothing else of the node's
// environment is passed on.
func Variables(c *edge.Claim) []string {
	e := c.Event
	return []string{
		"FENCEPOST_ATTEMPT=" + strconv.Itoa(c.Attempt),
		"FENCEPOST_CONTENT_TYPE=" + e.ContentType,
		deliveryVariable + "=" + c.DeliveryID,
		"FENCEPOST_EVENT=" + c.EventID,
		"FENCEPOST_EVENT_ID=" + e.ID,
		"FENCEPOST_EVENT_SOURCE=" + e.Source,
		"FENCEPOST_EVENT_SUBJECT=" + e.Subject,
		"FENCEPOST_EVENT_TIME=" + e.Time,
		"FENCEPOST_EVENT_TYPE=" + e.Type,
		fenceVariable + "=" + strconv.FormatInt(int64(c.Fence), 10),
		"FENCEPOST_KEY=" + c.Key,
		ownerVariable + "=" + c.Owner,
		"FENCEPOST_ROUTE=" + c.Route,
		"FENCEPOST_TARGET=" + c.Target.String(),
	}
}

func traceVariables(c *edge.Claim) []string {
	trace := c.Trace()
	vars := []string{"TRACEPARENT=" + trace.Parent}
	if trace.State != "" {
		vars = append(vars, "TRACESTATE="+trace.State)
	}
	return vars
}

// marks are the variables that together only the processes of this execution
// carry.
func marks(c *edge.Claim) []string {
	return []string{
		ownerVariable + "=" + c.Owner,
		deliveryVariable + "=" + c.DeliveryID,
		fenceVariable + "=" + strconv.FormatInt(int64(c.Fence), 10),
	}
}

func (h *Handler) environment(c *edge.Claim, filled map[string]string) (env []string, secrets []handlers.Secret, fault *edge.Result) {
	env = Variables(c)
	if i := slices.IndexFunc(env, func(v string) bool { return strings.ContainsRune(v, 0) }); i >= 0 {
		name, _, _ := strings.Cut(env[i], "=")
		r := edge.GiveUp(CodeEnvironmentInvalid, name+" has a NUL byte, which no environment can hold")
		return nil, nil, &r
	}
	for _, v := range append(baseEnvironment(), traceVariables(c)...) {
		name, _, _ := strings.Cut(v, "=")
		_, set := h.config.Env[name]
		if _, too := filled[name]; !set && !too {
			env = append(env, v)
		}
	}
	for name, value := range filled {
		env = append(env, name+"="+value)
	}
	for name, value := range h.config.Env {
		v, isRef, err := handlers.ResolveValue(value)
		if err != nil {
			return nil, nil, misconfigured(handlers.CodeSecretMissing, name+": "+err.Error())
		}
		if strings.ContainsRune(v.Reveal(), 0) {
			return nil, nil, misconfigured(handlers.CodeSecretInvalid, name+": the value has a NUL byte")
		}
		if isRef {
			secrets = append(secrets, v)
		}
		env = append(env, name+"="+v.Reveal())
	}
	slices.Sort(env)
	return env, secrets, nil
}

func checkEnv(env map[string]string) error {
	if len(env) > MaxVariables {
		return fmt.Errorf("env: %d variables, the limit is %d", len(env), MaxVariables)
	}
	var faults []error
	for name, value := range env {
		if err := checkVariable(name, value); err != nil {
			faults = append(faults, fmt.Errorf("env: %q: %w", name, err))
		}
	}
	slices.SortFunc(faults, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(faults...)
}

func checkVariable(name, value string) error {
	switch {
	case !handlers.ValidEnvName(name):
		return errors.New("a name has letters, digits and underscores, and does not begin with a digit")
	case strings.HasPrefix(strings.ToUpper(name), reservedPrefix):
		return errors.New("names that begin with FENCEPOST_ are reserved")
	case handlers.IsSecretRef(value):
		return handlers.CheckSecretRef(value)
	case strings.ContainsRune(value, 0):
		return errors.New("the value has a NUL byte")
	case len(value) > MaxVariableBytes:
		return fmt.Errorf("the value has %d bytes, the limit is %d", len(value), MaxVariableBytes)
	}
	return nil
}

func searchPath(env []string) string {
	for _, v := range env {
		if p, ok := strings.CutPrefix(v, "PATH="); ok {
			return p
		}
	}
	return ""
}

func envOr(name, other string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return other
}
