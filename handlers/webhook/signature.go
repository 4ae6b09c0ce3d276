package webhook

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"fencepost/handlers"
)

// Headers of Standard Webhooks 1.0.0.
const (
	HeaderID        = "Webhook-Id"
	HeaderTimestamp = "Webhook-Timestamp"
	HeaderSignature = "Webhook-Signature"
)

// Tolerance is how far a timestamp may be from the receiver's clock, into the
// past and into the future, as in the reference libraries.
const Tolerance = 5 * time.Minute

const (
	prefixHMAC    = "whsec_"
	prefixPrivate = "whsk_"
	prefixPublic  = "whpk_"

	// The specification asks for 24 to 64 bytes; one of its published vectors
	// has 18, and receivers have handed out 16.
	minSecretBytes = 16
	maxSecretBytes = 64
	maxSignatures  = 64 // entries of one header that are looked at
)

// Errors of [Verify].
var (
	ErrUnsigned  = errors.New("webhook is not signed")
	ErrSignature = errors.New("webhook signature does not match")
	ErrTimestamp = errors.New("webhook timestamp is too far from now")
)

// Key signs or verifies. Printing it shows nothing.
type Key struct {
	hmac    handlers.Secret // raw bytes, for v1
	private handlers.Secret // raw 64 bytes, for signing v1a
	public  ed25519.PublicKey
}

// ParseKey reads a signing secret: whsec_ or bare base64 of 16 to 64 bytes for
// v1, whsk_ (64 bytes, seed and public key) for v1a, or whpk_ (32 bytes), with
// which one can only verify. The error does not show the secret.
func ParseKey(secret handlers.Secret) (Key, error) {
	text := secret.Reveal()
	if rest, ok := strings.CutPrefix(text, prefixPrivate); ok {
		return parsePrivate(rest)
	}
	if rest, ok := strings.CutPrefix(text, prefixPublic); ok {
		raw, err := decodeBase64(rest)
		if err != nil || len(raw) != ed25519.PublicKeySize {
			return Key{}, errors.New("after whpk_ comes the base64 of 32 bytes")
		}
		return Key{public: raw}, nil
	}
	raw, err := decodeBase64(strings.TrimPrefix(text, prefixHMAC))
	if err != nil || len(raw) < minSecretBytes || len(raw) > maxSecretBytes {
		return Key{}, fmt.Errorf("a signing secret is whsec_ and the base64 of %d to %d random bytes", minSecretBytes, maxSecretBytes)
	}
	return Key{hmac: handlers.NewSecret(string(raw))}, nil
}

func parsePrivate(text string) (Key, error) {
	raw, err := decodeBase64(text)
	if err != nil || len(raw) != ed25519.PrivateKeySize {
		return Key{}, errors.New("after whsk_ comes the base64 of 64 bytes: seed and public key")
	}
	private := ed25519.NewKeyFromSeed(raw[:ed25519.SeedSize])
	if !private.Equal(ed25519.PrivateKey(raw)) {
		return Key{}, errors.New("the two halves of the whsk_ key do not belong together")
	}
	return Key{
		private: handlers.NewSecret(string(private)),
		public:  private.Public().(ed25519.PublicKey),
	}, nil
}

func decodeBase64(s string) ([]byte, error) {
	if b, err := base64.StdEncoding.Strict().DecodeString(s); err == nil {
		return b, nil
	}
	return base64.RawStdEncoding.Strict().DecodeString(s)
}

// Sign returns the value of the header Webhook-Signature: one entry for each
// key, in their order. body must be the exact bytes that are sent; timestamp is
// in Unix seconds. An id with a dot, and a key that cannot sign, are errors.
func Sign(keys []Key, id string, timestamp int64, body []byte) (string, error) {
	if len(keys) == 0 {
		return "", errors.New("sign: no key")
	}
	if err := checkID(id); err != nil {
		return "", err
	}
	entries := make([]string, len(keys))
	for i, k := range keys {
		entry, err := k.sign(signedText(id, strconv.FormatInt(timestamp, 10), body))
		if err != nil {
			return "", err
		}
		entries[i] = entry
	}
	return strings.Join(entries, " "), nil
}

func (k Key) sign(text []byte) (string, error) {
	if secret := k.hmac.Reveal(); secret != "" {
		return "v1," + base64.StdEncoding.EncodeToString(mac(secret, text)), nil
	}
	if private := k.private.Reveal(); private != "" {
		return "v1a," + base64.StdEncoding.EncodeToString(ed25519.Sign(ed25519.PrivateKey(private), text)), nil
	}
	return "", errors.New("sign: this key can only verify")
}

func (k Key) verify(version string, signature, text []byte) bool {
	switch version {
	case "v1":
		secret := k.hmac.Reveal()
		return secret != "" && hmac.Equal(signature, mac(secret, text))
	case "v1a":
		return len(k.public) == ed25519.PublicKeySize && ed25519.Verify(k.public, text, signature)
	}
	return false
}

// Verify checks the signature of a request that was received at now: one entry
// of the header that one of the keys made is enough, entries of unknown versions
// are passed over. Errors wrap [ErrUnsigned] (a header is missing),
// [ErrTimestamp] or [ErrSignature].
func Verify(keys []Key, h http.Header, body []byte, now time.Time) error {
	id, timestamp := h.Get(HeaderID), h.Get(HeaderTimestamp)
	entries := strings.Fields(strings.Join(h.Values(HeaderSignature), " "))
	if id == "" || timestamp == "" || len(entries) == 0 {
		return fmt.Errorf("%w: %s, %s or %s is missing", ErrUnsigned, HeaderID, HeaderTimestamp, HeaderSignature)
	}
	if err := checkID(id); err != nil {
		return fmt.Errorf("%w: %w", ErrSignature, err)
	}
	if err := checkTimestamp(timestamp, now); err != nil {
		return err
	}
	text := signedText(id, timestamp, body)
	for _, entry := range entries[:min(len(entries), maxSignatures)] {
		version, encoded, _ := strings.Cut(entry, ",")
		signature, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil || len(signature) == 0 {
			continue
		}
		for _, k := range keys {
			if k.verify(version, signature, text) {
				return nil
			}
		}
	}
	return ErrSignature
}

func checkTimestamp(s string, now time.Time) error {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || strconv.FormatInt(n, 10) != s {
		return fmt.Errorf("%w: not a whole number of Unix seconds", ErrTimestamp)
	}
	tolerance, at := int64(Tolerance/time.Second), now.Unix()
	if n < at-tolerance || n > at+tolerance {
		return fmt.Errorf("%w: more than %s", ErrTimestamp, Tolerance)
	}
	return nil
}

func checkID(id string) error {
	if id == "" || strings.Contains(id, ".") {
		return errors.New("a webhook id is not empty and has no dot, as a dot ends it in the signed text")
	}
	return nil
}

func signedText(id, timestamp string, body []byte) []byte {
	text := make([]byte, 0, len(id)+len(timestamp)+2+len(body))
	text = append(text, id...)
	text = append(text, '.')
	text = append(text, timestamp...)
	text = append(text, '.')
	return append(text, body...)
}

func mac(secret string, text []byte) []byte {
	m := hmac.New(sha256.New, []byte(secret))
	m.Write(text)
	return m.Sum(nil)
}
