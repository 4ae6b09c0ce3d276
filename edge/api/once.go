package api

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"maps"
	"net/http"
	"slices"
	"time"

	"fencepost/edge"
)

// Headers of the answer to a request with an Idempotency-Key.
const (
	HeaderReplayed = "Idempotency-Replayed" // "true" when the answer is the stored one
	HeaderExpires  = "Idempotency-Expires"  // until when it is replayed, an HTTP date
)

// once carries a request with an Idempotency-Key out, or finds its answers
// (draft-ietf-httpapi-idempotency-key-header-07). The look-up and the events are
// one transaction, so a request that comes while the same one is under way waits
// for it and gets its answer.
func (h *intake) once(w http.ResponseWriter, r *http.Request, in Intent) ([]edge.Accepted, error) {
	kept, err := h.take.EnqueueOnce(r.Context(), edge.RequestKey{Key: scopedKey(r, in.Key), Fingerprint: fingerprint(in)}, in.Events)
	if err != nil {
		return nil, err
	}
	if kept.Replayed {
		w.Header().Set(HeaderReplayed, "true")
	}
	if h.keep != nil {
		if d := h.keep(); d > 0 {
			w.Header().Set(HeaderExpires, time.UnixMilli(kept.AtMS).Add(d).UTC().Format(http.TimeFormat))
		}
	}
	return kept.Answers, nil
}

// scopedKey is the key within its scope: the token, the method and the path. The
// network and the socket, which has no token, are two scopes.
func scopedKey(r *http.Request, key string) [sha256.Size]byte {
	token := bearer(r.Header.Values("Authorization"))
	return digest(token[:], []byte(r.Method), []byte(r.URL.EscapedPath()), []byte(key))
}

// fingerprint is what a request asks for: the form and every attribute of every
// event. The traces of hops are left out, as each try has another.
func fingerprint(in Intent) [sha256.Size]byte {
	parts := [][]byte{{0}}
	if in.Batch {
		parts[0][0] = 1
	}
	for i := range in.Events {
		e := &in.Events[i]
		for _, s := range [...]string{e.Source, e.ID, e.Type, e.Subject, e.Time, e.ContentType} {
			parts = append(parts, []byte(s))
		}
		parts = append(parts, binary.BigEndian.AppendUint64(nil, uint64(len(e.Extensions))))
		for _, name := range slices.Sorted(maps.Keys(e.Extensions)) {
			parts = append(parts, []byte(name), []byte(e.Extensions[name]))
		}
		parts = append(parts, e.Data)
	}
	return digest(parts...)
}

// digest is the SHA-256 over parts, each with its length in front.
func digest(parts ...[]byte) (sum [sha256.Size]byte) {
	h := sha256.New()
	for _, p := range parts {
		writePart(h, p)
	}
	h.Sum(sum[:0])
	return sum
}

func writePart(h hash.Hash, p []byte) {
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(len(p)))
	h.Write(n[:])
	h.Write(p)
}
