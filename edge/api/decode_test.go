package api_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"fencepost/edge"
	"fencepost/edge/api"

	"github.com/stretchr/testify/require"
)

const (
	structured = "application/cloudevents+json"
	batch      = "application/cloudevents-batch+json"
)

// request is a POST with headers given as name, value, name, value...
func request(path, body string, headers ...string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

func decodeOne(t *testing.T, r *http.Request) edge.Event {
	t.Helper()
	in, err := api.Decode(r, 0)
	require.NoError(t, err)
	require.Len(t, in.Events, 1)
	return in.Events[0]
}

// refused decodes r, which must fail, and returns the problem.
func refused(t *testing.T, r *http.Request) *api.Problem {
	t.Helper()
	_, err := api.Decode(r, 0)
	var p *api.Problem
	require.ErrorAs(t, err, &p)
	return p
}

var coreHeaders = []string{"ce-specversion", "1.0", "ce-id", "1", "ce-source", "/s", "ce-type", "t"}

func binary(body string, headers ...string) *http.Request {
	return request("/v1/events", body, append(append([]string{}, coreHeaders...), headers...)...)
}

func envelope(rest string) string {
	return `{"specversion":"1.0","id":"1","source":"/s","type":"t"` + rest + `}`
}

func TestDecode_PlainTakesAttributesFromTheQuery(t *testing.T) {
	t.Parallel()
	ev := decodeOne(t, request("/v1/events?type=greeting.hello&subject=bob&source=%2Fshop&id=7", "hi", "Content-Type", "text/plain"))
	require.Equal(t, edge.Event{ID: "7", Type: "greeting.hello", Subject: "bob", Source: "/shop", ContentType: "text/plain", Data: []byte("hi")}, ev)
}

func TestDecode_PlainDefaults(t *testing.T) {
	t.Parallel()
	a := decodeOne(t, request("/v1/events?type=a", ""))
	b := decodeOne(t, request("/v1/events?type=a", ""))
	require.Equal(t, api.DefaultSource, a.Source)
	require.Empty(t, a.Data)
	require.NotEmpty(t, a.ID)
	require.NotEqual(t, a.ID, b.ID, "ids are random")
}

func TestDecode_BinaryPercentDecodes(t *testing.T) {
	t.Parallel()
	for encoded, want := range map[string]string{
		"Euro%20%E2%82%AC%20%F0%9F%98%80": "Euro € 😀", // vector of the specification
		"Euro%20%e2%82%ac%20%f0%9f%98%80": "Euro € 😀", // lower case
		"%45uro":                          "Euro",     // needless
		`"Euro%20%E2%82%AC \"x\""`:        `Euro € "x"`,
		"100%25":                          "100%",
		"Euro €":                          "Euro €", // raw UTF-8
	} {
		require.Equal(t, want, decodeOne(t, binary("", "ce-subject", encoded)).Subject, encoded)
	}
}

func TestDecode_BinaryRefusesBrokenHeaders(t *testing.T) {
	t.Parallel()
	for value, detail := range map[string]string{
		"%C0%A0":      "UTF-8",
		"\xc0\xa0":    "UTF-8",
		"%ED%A0%80":   "UTF-8",
		"100%":        "hexadecimal",
		"%4":          "hexadecimal",
		"%zz":         "hexadecimal",
		`"open`:       "quote",
		`"a" b`:       "quote",
		`"a\`:         "quote",
		"a%00b":       "control character",
		"a%0d%0aX: 1": "control character",
		"%C2%85":      "control character",
	} {
		p := refused(t, binary("", "ce-subject", value))
		require.Equal(t, api.CodeInvalid, p.Code, value)
		require.Equal(t, "ce-subject", p.Errors[0].Header, value)
		require.Contains(t, p.Errors[0].Detail, detail, value)
	}
}

func TestDecode_ExtensionsAreCanonicalText(t *testing.T) {
	t.Parallel()
	ev := decodeOne(t, request("/v1/events", envelope(`,"a":"x","b":true,"c":false,"d":-2147483648,"e":2147483647,"f":null,"subject":null,"g":-0,"dataschema":"http://x/y"`), "Content-Type", structured))
	require.Equal(t, map[string]string{"a": "x", "b": "true", "c": "false", "d": "-2147483648", "e": "2147483647", "g": "0", "dataschema": "http://x/y"}, ev.Extensions)
	require.Empty(t, ev.Subject)
	ev = decodeOne(t, binary("", "ce-partitionkey", "p", "ce-time", "2026-01-31T08:00:00.5+01:00"))
	require.Equal(t, map[string]string{"partitionkey": "p"}, ev.Extensions)
	require.Equal(t, "2026-01-31T08:00:00.5+01:00", ev.Time, "kept as received")
}

// strangeBodies are JSON texts that a reader is tempted to rewrite.
var strangeBodies = []string{
	`{"z":1,"a":2,"m":{"y":1,"b":2}}`,
	`{"a":1,"a":2}`,
	`1e400`, `[9223372036854775809, 1E+2, 0.10, -0]`,
	"\"\u2028\u2029 \\u2028 </script> \\/ \\u003c\"",
	"{ \"a\" :\t[ ] ,\r\n \"b\":{ } }",
	`"\ud800"`, `null`, `""`, `true`,
	`"😀 \ud83d\ude00"`,
}

func TestD8_DataIsKeptByteForByte(t *testing.T) {
	t.Parallel()
	for _, body := range strangeBodies {
		for form, r := range map[string]*http.Request{
			"plain":      request("/v1/events?type=t", body, "Content-Type", "application/json"),
			"binary":     binary(body, "Content-Type", "application/json"),
			"structured": request("/v1/events", envelope(`, "data" :  `+body+` `), "Content-Type", structured),
			"base64":     request("/v1/events", envelope(`,"datacontenttype":"application/json","data_base64":"`+base64.StdEncoding.EncodeToString([]byte(body))+`"`), "Content-Type", structured),
			"batch":      request("/v1/events", "[\n"+envelope(`,"data":`+body)+"\n]\n", "Content-Type", batch),
		} {
			ev := decodeOne(t, r)
			require.Equal(t, body, string(ev.Data), form)
			require.Equal(t, "application/json", ev.ContentType, form)
		}
	}
	for form, r := range map[string]*http.Request{
		"plain":  request("/v1/events?type=t", "{\"a\":1}\n\n", "Content-Type", "application/json"),
		"binary": binary("{\"a\":1}\n\n", "Content-Type", "application/json"),
	} {
		require.Equal(t, "{\"a\":1}\n\n", string(decodeOne(t, r).Data), form+": the trailing newlines belong to the data")
	}
	raw := string([]byte{0, 1, 0xff, '\n', '%'})
	require.Equal(t, raw, string(decodeOne(t, binary(raw, "Content-Type", "application/octet-stream")).Data))
}

func TestDecode_StructuredDataOfOtherTypes(t *testing.T) {
	t.Parallel()
	ev := decodeOne(t, request("/v1/events", envelope(`,"datacontenttype":"text/xml","data":"<a b=\"c\"/>€"`), "Content-Type", structured))
	require.Equal(t, `<a b="c"/>€`, string(ev.Data))
	ev = decodeOne(t, request("/v1/events", envelope(`,"data_base64":"AP8="`), "Content-Type", structured))
	require.Equal(t, []byte{0, 0xff}, ev.Data)
	ev = decodeOne(t, request("/v1/events", envelope(""), "Content-Type", "Application/CloudEvents+JSON; charset=UTF-8"))
	require.Equal(t, []byte{}, ev.Data, "not nil: nil means pruned")
	ev = decodeOne(t, request("/v1/events", envelope(`,"data":{"a":1}`), "Content-Type", structured, "ce-id", "mirrored by a proxy"))
	require.Equal(t, "1", ev.ID, "the mode is told by Content-Type")
}

func TestDecode_Batch(t *testing.T) {
	t.Parallel()
	in, err := api.Decode(request("/v1/events", " [] ", "Content-Type", batch), 0)
	require.NoError(t, err)
	require.Equal(t, api.Intent{Events: []edge.Event{}, Batch: true}, in)

	events := func(n int) string {
		return "[" + strings.TrimSuffix(strings.Repeat(envelope("")+",", n), ",") + "]"
	}
	in, err = api.Decode(request("/v1/events", events(edge.MaxBatchEvents), "Content-Type", batch), 0)
	require.NoError(t, err)
	require.Len(t, in.Events, edge.MaxBatchEvents)
	p := refused(t, request("/v1/events", events(edge.MaxBatchEvents+1), "Content-Type", batch))
	require.Equal(t, api.CodeInvalid, p.Code)
	require.Contains(t, p.Detail, "1000")

	big := envelope(`,"data":"` + strings.Repeat("x", 1<<20-200) + `"`)
	four := "[" + strings.Join([]string{big, big, big, big}, ",") + "]"
	_, err = api.Decode(request("/v1/events", four, "Content-Type", batch), 0)
	require.NoError(t, err)
	p = refused(t, request("/v1/events", four+strings.Repeat(" ", edge.MaxBatchBytes+1-len(four)), "Content-Type", batch))
	require.Equal(t, http.StatusRequestEntityTooLarge, p.Status)
}

func TestDecode_BatchListsEveryFaultWithItsPlace(t *testing.T) {
	t.Parallel()
	body := "[" + envelope("") + `,{"specversion":"1.0","id":"","source":"/s","type":"t"},7,` + envelope(`,"a~/b":1`) + "]"
	p := refused(t, request("/v1/events", body, "Content-Type", batch))
	require.Equal(t, http.StatusBadRequest, p.Status)
	require.Len(t, p.Errors, 3)
	require.Equal(t, "/1/id", p.Errors[0].Pointer)
	require.Equal(t, "/2", p.Errors[1].Pointer)
	require.Equal(t, "/3/a~0~1b", p.Errors[2].Pointer)
	many := refused(t, request("/v1/events", "["+strings.TrimSuffix(strings.Repeat("{},", 500), ",")+"]", "Content-Type", batch))
	require.Len(t, many.Errors, 20, "bounded")
}

func TestQ4_EmptyAndBlankIDsAreRefusedInEveryForm(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"", " ", "   "} {
		escaped := url.QueryEscape(id)
		header := strings.ReplaceAll(id, " ", "%20")
		for form, r := range map[string]*http.Request{
			"plain":           request("/v1/events?type=t&id="+escaped, ""),
			"binary":          request("/v1/events", "", "ce-specversion", "1.0", "ce-id", header, "ce-source", "/s", "ce-type", "t"),
			"binary, none":    request("/v1/events", "", "ce-specversion", "1.0", "ce-source", "/s", "ce-type", "t"),
			"structured":      request("/v1/events", fmt.Sprintf(`{"specversion":"1.0","id":%q,"source":"/s","type":"t"}`, id), "Content-Type", structured),
			"structured, nul": request("/v1/events", `{"specversion":"1.0","id":null,"source":"/s","type":"t"}`, "Content-Type", structured),
			"batch":           request("/v1/events", fmt.Sprintf(`[{"specversion":"1.0","id":%q,"source":"/s","type":"t"}]`, id), "Content-Type", batch),
			"key":             request("/v1/events?type=t", "", "Idempotency-Key", id),
			"quoted key":      request("/v1/events?type=t", "", "Idempotency-Key", `"`+id+`"`),
		} {
			p := refused(t, r)
			require.Equal(t, http.StatusBadRequest, p.Status, form)
			require.Contains(t, p.Detail, "empty", form)
		}
	}
}

func TestDecode_Refuses(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", edge.MaxNameBytes+1)
	deep := strings.Repeat("[", 65) + strings.Repeat("]", 65)
	json := func(body string) *http.Request { return request("/v1/events", body, "Content-Type", structured) }
	twice := binary("", "ce-subject", "a", "ce-subject", "b")
	for name, c := range map[string]struct {
		r      *http.Request
		status int
		place  api.FieldFault // Detail is a part of it
	}{
		"plain without type":       {request("/v1/events", "{}"), 400, api.FieldFault{Parameter: "type", Detail: "required"}},
		"plain, empty type":        {request("/v1/events?type=", ""), 400, api.FieldFault{Parameter: "type", Detail: "empty"}},
		"plain, empty source":      {request("/v1/events?type=t&source=", ""), 400, api.FieldFault{Parameter: "source", Detail: "empty"}},
		"plain, unknown parameter": {request("/v1/events?type=t&subjekt=x", ""), 400, api.FieldFault{Parameter: "subjekt", Detail: "not known"}},
		"plain, parameter twice":   {request("/v1/events?type=t&type=u", ""), 400, api.FieldFault{Parameter: "type", Detail: "more than once"}},
		"plain, broken query":      {request("/v1/events?type=t;x", ""), 400, api.FieldFault{Detail: "malformed"}},
		"plain, long subject":      {request("/v1/events?type=t&subject="+long, ""), 400, api.FieldFault{Parameter: "subject", Detail: "limit is 512"}},
		"plain, broken JSON":       {request("/v1/events?type=t", "{", "Content-Type", "application/json"), 400, api.FieldFault{Detail: "data: is not valid JSON"}},
		"plain, deep JSON":         {request("/v1/events?type=t", deep, "Content-Type", "text/x+json"), 400, api.FieldFault{Detail: "limit of 64"}},
		"plain, JSON not UTF-8":    {request("/v1/events?type=t", "\"\xff\"", "Content-Type", "application/json"), 400, api.FieldFault{Detail: "UTF-8"}},

		"binary, no specversion": {request("/v1/events", "", "ce-id", "1"), 400, api.FieldFault{Header: "ce-specversion", Detail: `"1.0"`}},
		"binary, old":            {request("/v1/events", "", "ce-specversion", "0.3"), 400, api.FieldFault{Header: "ce-specversion", Detail: `"0.3"`}},
		"binary, twice":          {twice, 400, api.FieldFault{Header: "ce-subject", Detail: "more than once"}},
		"binary, bad name":       {binary("", "ce-a-b", "x"), 400, api.FieldFault{Header: "ce-a-b", Detail: "lower-case"}},
		"binary, long name":      {binary("", "ce-"+strings.Repeat("a", 21), "x"), 400, api.FieldFault{Header: "ce-" + strings.Repeat("a", 21), Detail: "20"}},
		"binary, datacontent":    {binary("", "ce-datacontenttype", "x"), 400, api.FieldFault{Header: "ce-datacontenttype", Detail: "Content-Type"}},
		"binary, bad time":       {binary("", "ce-time", "yesterday"), 400, api.FieldFault{Header: "ce-time", Detail: "RFC 3339"}},
		"binary with a query":    {requestTo(binary(""), "type=t"), 400, api.FieldFault{Detail: "query"}},
		"two content types":      {binary("", "Content-Type", "a/b", "Content-Type", "c/d"), 400, api.FieldFault{Header: "Content-Type", Detail: "more than once"}},
		"long content type":      {binary("", "Content-Type", long), 400, api.FieldFault{Header: "Content-Type", Detail: "512"}},
		"gzip":                   {binary("", "Content-Encoding", "gzip"), 415, api.FieldFault{Header: "Content-Encoding", Detail: "absent"}},
		"deflate":                {binary("", "Content-Encoding", "identity", "Content-Encoding", "deflate"), 415, api.FieldFault{Header: "Content-Encoding", Detail: "absent"}},

		"not JSON":               {json("{"), 400, api.FieldFault{Detail: "not valid JSON at byte"}},
		"empty":                  {json(""), 400, api.FieldFault{Detail: "not valid JSON"}},
		"two texts":              {json(envelope("") + envelope("")), 400, api.FieldFault{Detail: "not valid JSON"}},
		"not an object":          {json("[]"), 400, api.FieldFault{Detail: "object"}},
		"not UTF-8":              {json(envelope(",\"a\":\"\xff\"")), 400, api.FieldFault{Detail: "UTF-8"}},
		"name twice":             {json(envelope(`,"id":"2"`)), 400, api.FieldFault{Pointer: "/id", Detail: "more than once"}},
		"name twice, escaped":    {json(envelope(`,"\u0069d":"2"`)), 400, api.FieldFault{Pointer: "/id", Detail: "more than once"}},
		"data twice":             {json(envelope(`,"data":1,"data":2`)), 400, api.FieldFault{Pointer: "/data", Detail: "more than once"}},
		"data both":              {json(envelope(`,"data":1,"data_base64":"AA=="`)), 400, api.FieldFault{Pointer: "/data_base64", Detail: "both"}},
		"base64":                 {json(envelope(`,"data_base64":"A"`)), 400, api.FieldFault{Pointer: "/data_base64", Detail: "base64"}},
		"base64, newline":        {json(envelope(`,"data_base64":"AA\n=="`)), 400, api.FieldFault{Pointer: "/data_base64", Detail: "base64"}},
		"base64, number":         {json(envelope(`,"data_base64":1`)), 400, api.FieldFault{Pointer: "/data_base64", Detail: "string"}},
		"deep data":              {json(envelope(`,"data":` + deep)), 400, api.FieldFault{Pointer: "/data", Detail: "limit of 64"}},
		"very deep envelope":     {json(strings.Repeat("[", 500_000) + strings.Repeat("]", 500_000)), 400, api.FieldFault{Detail: "JSON"}},
		"upper-case name":        {json(envelope(`,"ID":"2"`)), 400, api.FieldFault{Pointer: "/ID", Detail: "lower-case"}},
		"number as id":           {json(`{"specversion":"1.0","id":1,"source":"/s","type":"t"}`), 400, api.FieldFault{Pointer: "/id", Detail: "string"}},
		"object as extension":    {json(envelope(`,"a":{}`)), 400, api.FieldFault{Pointer: "/a", Detail: "integer"}},
		"fraction":               {json(envelope(`,"a":1.0`)), 400, api.FieldFault{Pointer: "/a", Detail: "32 bits"}},
		"33 bits":                {json(envelope(`,"a":2147483648`)), 400, api.FieldFault{Pointer: "/a", Detail: "32 bits"}},
		"half a pair":            {json(envelope(`,"a":"\ud83d"`)), 400, api.FieldFault{Pointer: "/a", Detail: "half of a pair"}},
		"no specversion":         {json(`{"id":"1","source":"/s","type":"t"}`), 400, api.FieldFault{Pointer: "/specversion", Detail: "required"}},
		"text data, not string":  {json(envelope(`,"datacontenttype":"text/plain","data":{}`)), 400, api.FieldFault{Pointer: "/data", Detail: "data_base64"}},
		"other charset":          {request("/v1/events", envelope(""), "Content-Type", structured+"; charset=latin1"), 415, api.FieldFault{Header: "Content-Type", Detail: structured}},
		"XML":                    {request("/v1/events", "<x/>", "Content-Type", "application/cloudevents+xml"), 415, api.FieldFault{Header: "Content-Type", Detail: structured}},
		"batch in another form":  {request("/v1/events", "[]", "Content-Type", "application/cloudevents-batch+avro"), 415, api.FieldFault{Header: "Content-Type", Detail: batch}},
		"batch is an object":     {request("/v1/events", "{}", "Content-Type", batch), 400, api.FieldFault{Detail: "array"}},
		"too large":              {request("/v1/events?type=t", strings.Repeat("x", 1<<20+1)), 413, api.FieldFault{}},
		"too large, no length":   {chunked("/v1/events?type=t", 1<<20+1), 413, api.FieldFault{}},
		"too large in structure": {json(envelope(strings.Repeat(" ", 1<<20))), 413, api.FieldFault{}},
	} {
		p := refused(t, c.r)
		require.Equal(t, c.status, p.Status, name)
		if c.status == http.StatusRequestEntityTooLarge {
			require.Contains(t, p.Detail, "1048576", name)
			continue
		}
		require.NotEmpty(t, p.Errors, name)
		got := p.Errors[0]
		require.Contains(t, got.Detail, c.place.Detail, name)
		got.Detail, c.place.Detail = "", ""
		require.Equal(t, c.place, got, name)
	}
}

func requestTo(r *http.Request, query string) *http.Request {
	r.URL.RawQuery = query
	return r
}

func chunked(path string, n int) *http.Request {
	r := request(path, strings.Repeat("x", n))
	r.ContentLength = -1
	return r
}

func TestDecode_LimitsAreReachable(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 64) + strings.Repeat("]", 64)
	require.Equal(t, deep, string(decodeOne(t, request("/v1/events", envelope(`,"data":`+deep), "Content-Type", structured)).Data))
	require.Equal(t, deep, string(decodeOne(t, binary(deep, "Content-Type", "application/json")).Data))
	require.Len(t, decodeOne(t, chunked("/v1/events?type=t", 1<<20)).Data, 1<<20)
	quoted := `["[[[[` + strings.Repeat("[", 100) + `", "\"[[["]`
	require.Equal(t, quoted, string(decodeOne(t, binary(quoted, "Content-Type", "application/json")).Data), "brackets in strings are no nesting")

	var headers, members []string
	for i := range 57 { // 64 without the seven core attributes
		headers = append(headers, fmt.Sprintf("ce-x%d", i), "v")
		members = append(members, fmt.Sprintf(`"x%d":"v"`, i))
	}
	require.Len(t, decodeOne(t, binary("", headers...)).Extensions, 57)
	require.Len(t, decodeOne(t, request("/v1/events", envelope(","+strings.Join(members, ",")), "Content-Type", structured)).Extensions, 57)
	p := refused(t, binary("", append(headers, "ce-y", "v")...))
	require.Contains(t, p.Detail, "limit is 64")
	p = refused(t, request("/v1/events", envelope(`,"y":"v",`+strings.Join(members, ",")), "Content-Type", structured))
	require.Contains(t, p.Detail, "limit is 64")
}

func TestDecode_IdempotencyKey(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]string{
		`"8e03978e-40d5"`: "8e03978e-40d5",
		"8e03978e-40d5":   "8e03978e-40d5",
		`"a \"b\" \\ c"`:  `a "b" \ c`,
		"  bare  ":        "bare",
		"a/b+c==":         "a/b+c==",
	} {
		in, err := api.Decode(request("/v1/events?type=t", "", "Idempotency-Key", header), 0)
		require.NoError(t, err, header)
		require.Equal(t, want, in.Events[0].ID, header)
		require.Equal(t, want, in.Key)
		require.True(t, in.KeyID)
	}
	for _, header := range []string{`"open`, `"a"b"`, `"a\x"`, `"a";p=1`, "two words", "a,b", "ké", `"` + strings.Repeat("x", 513) + `"`} {
		p := refused(t, request("/v1/events?type=t", "", "Idempotency-Key", header))
		require.Equal(t, http.StatusBadRequest, p.Status, header)
		require.Equal(t, "Idempotency-Key", p.Errors[0].Header, header)
	}
	p := refused(t, request("/v1/events?type=t", "", "Idempotency-Key", "a", "Idempotency-Key", "b"))
	require.Contains(t, p.Detail, "more than once")
	for name, r := range map[string]*http.Request{
		"plain with an id": request("/v1/events?type=t&id=1", "", "Idempotency-Key", "k"),
		"binary":           binary("", "Idempotency-Key", "k"),
		"structured":       request("/v1/events", envelope(""), "Content-Type", structured, "Idempotency-Key", "k"),
		"batch":            request("/v1/events", "["+envelope("")+"]", "Content-Type", batch, "Idempotency-Key", "k"),
	} {
		in, err := api.Decode(r, 0)
		require.NoError(t, err, name)
		require.Equal(t, "1", in.Events[0].ID, "%s: the event keeps its id", name)
		require.Equal(t, "k", in.Key, name)
		require.False(t, in.KeyID, name)
	}
}

// FuzzDecode: no input panics, every refusal is a problem with a status of the
// caller's class, and what is taken is valid and survives being sent again in
// the other forms.
func FuzzDecode(f *testing.F) {
	for _, body := range strangeBodies {
		f.Add(body, "application/json", "type=t", "1.0", "1", "a%20b", "")
		f.Add(envelope(`,"data":`+body), structured, "", "", "", "", "")
		f.Add("["+envelope(`,"a":7`)+"]", batch, "", "", "", "", `"k"`)
	}
	f.Add("x", "text/plain", "type=t&subject=%E2%82%AC", "", "", "", "key")
	f.Add("", "", "", "1.0", "%C0%A0", `"q"`, "")
	f.Fuzz(func(t *testing.T, body, contentType, query, version, id, ext, key string) {
		r := httptest.NewRequest(http.MethodPost, "/v1/events", strings.NewReader(body))
		r.URL.RawQuery = query
		for name, value := range map[string]string{
			"Content-Type": contentType, "Ce-Specversion": version, "Ce-Id": id, "Ce-Ext": ext, "Idempotency-Key": key,
		} {
			if value != "" {
				r.Header[name] = []string{value}
			}
		}
		if version != "" {
			r.Header["Ce-Source"], r.Header["Ce-Type"] = []string{"/s"}, []string{"t"}
		}
		in, err := api.Decode(r, 0)
		if err != nil {
			var p *api.Problem
			require.ErrorAs(t, err, &p)
			require.True(t, p.Status >= 400 && p.Status < 500, p.Status)
			require.NotEmpty(t, p.Error())
			return
		}
		require.True(t, in.Batch || len(in.Events) == 1)
		for _, ev := range in.Events {
			require.NoError(t, ev.Validate(0))
			require.Equal(t, ev, resent(t, asBinary(ev)))
			require.Equal(t, ev, resent(t, asStructured(t, ev)))
			again, err := api.ParseEvent(api.AppendEvent(nil, &ev), edge.Event{}, 2*edge.MaxDataBytes)
			require.NoError(t, err)
			require.Equal(t, ev, again)
		}
	})
}

func resent(t *testing.T, r *http.Request) edge.Event {
	t.Helper()
	in, err := api.Decode(r, 2*edge.MaxDataBytes) // base64 is longer
	require.NoError(t, err)
	return in.Events[0]
}

// asBinary writes ev by the specification: percent-encoding of all but
// printable ASCII without space, quote and percent.
func asBinary(ev edge.Event) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/v1/events", bytes.NewReader(ev.Data))
	for name, value := range attributes(ev) {
		if name == "datacontenttype" {
			r.Header["Content-Type"] = []string{value}
			continue
		}
		var b strings.Builder
		for _, c := range []byte(value) {
			if c <= ' ' || c > '~' || c == '"' || c == '%' {
				fmt.Fprintf(&b, "%%%02X", c)
			} else {
				b.WriteByte(c)
			}
		}
		r.Header.Set("ce-"+name, b.String())
	}
	return r
}

func asStructured(t *testing.T, ev edge.Event) *http.Request {
	t.Helper()
	var b strings.Builder
	b.WriteString("{")
	for name, value := range attributes(ev) {
		fmt.Fprintf(&b, "%s:%s,", jsonText(t, name), jsonText(t, value))
	}
	if len(ev.Data) > 0 {
		fmt.Fprintf(&b, `"data_base64":%q,`, base64.StdEncoding.EncodeToString(ev.Data))
	}
	return request("/v1/events", strings.TrimSuffix(b.String(), ",")+"}", "Content-Type", structured)
}

func attributes(ev edge.Event) map[string]string {
	out := map[string]string{"specversion": "1.0", "id": ev.ID, "source": ev.Source, "type": ev.Type}
	maps.Copy(out, ev.Extensions)
	for name, value := range map[string]string{"subject": ev.Subject, "time": ev.Time, "datacontenttype": ev.ContentType} {
		if value != "" {
			out[name] = value
		}
	}
	return out
}
