package webhook_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fencepost/handlers"
	"fencepost/handlers/webhook"
)

func key(t *testing.T, text string) webhook.Key {
	t.Helper()
	k, err := webhook.ParseKey(handlers.NewSecret(text))
	require.NoError(t, err)
	return k
}

const (
	secret1 = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	secret2 = "whsec_plJ3nmyCDGBKInavdOK15jsl"
	id1     = "msg_p5jXN8AQM9LWM0D4loKWxJek"
	ts1     = 1614265330
	body1   = `{"test": 2432232314}`
	sig1    = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	whsk4   = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
	whpk4   = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="
	sig4    = "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg=="
)

func vector3(t *testing.T) (private, public string) {
	t.Helper()
	seed, err := base64.StdEncoding.DecodeString("VEVTVFNJR05JTkdLRVlET05PVFVTRVRISVNGT1JBTlk=")
	require.NoError(t, err)
	k := ed25519.NewKeyFromSeed(seed)
	return "whsk_" + base64.StdEncoding.EncodeToString(k), "whpk_ZlN4eg7dSSqi0moX9hQUk3orrOouK3QVQSlJa248c/g="
}

func TestSignVectors(t *testing.T) {
	t.Parallel()
	private3, public3 := vector3(t)
	for _, c := range []struct {
		name, secret, verifyWith, id string
		timestamp                    int64
		body, want                   string
	}{
		{"1", secret1, secret1, id1, ts1, body1, sig1},
		{"1 bare", strings.TrimPrefix(secret1, "whsec_"), secret1, id1, ts1, body1, sig1},
		{"2", secret2, secret2, "msg_loFOjxBNrRLzqYUf", 1731705121, `{"event_type":"ping","data":{"success":true}}`, "v1,rAvfW3dJ/X/qxhsaXPOyyCGmRKsaKWcsNccKXlIktD0="},
		{"3", private3, public3, id1, ts1, body1, "v1a,tQ9V2XOqn7jL/DQenEFpqIugdBVtiMmER5mhSkXBNwM0mkATuDe6KYYUuxqtaiHeYGb7KaaBRdM5WqyeFiL8Ag=="},
		{"4", whsk4, whpk4, id1, ts1, body1, sig4},
	} {
		got, err := webhook.Sign([]webhook.Key{key(t, c.secret)}, c.id, c.timestamp, []byte(c.body))
		require.NoError(t, err, c.name)
		require.Equal(t, c.want, got, c.name)
		h := signed(c.id, c.timestamp, got)
		for _, with := range []string{c.verifyWith, c.secret} {
			require.NoError(t, webhook.Verify([]webhook.Key{key(t, with)}, h, []byte(c.body), time.Unix(c.timestamp, 0)), c.name)
		}
	}
}

func signed(id string, timestamp int64, signature string) http.Header {
	h := http.Header{}
	h.Set("webhook-id", id)
	h.Set("webhook-timestamp", strconv.FormatInt(timestamp, 10))
	h.Set("webhook-signature", signature)
	return h
}

func TestSignWithSeveralSecretsNewestFirst(t *testing.T) {
	t.Parallel()
	got, err := webhook.Sign([]webhook.Key{key(t, whsk4), key(t, secret1)}, id1, ts1, []byte(body1))
	require.NoError(t, err)
	require.Equal(t, sig4+" "+sig1, got)
}

func TestVerifySignatureLists(t *testing.T) {
	t.Parallel()
	wrong := "v1,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc="
	keys := []webhook.Key{key(t, secret1)}
	now := time.Unix(ts1, 0)
	for _, c := range []struct {
		name, list string
		ok         bool
	}{
		{"right first", sig1 + " " + wrong + " v2,AAAA", true},
		{"right in the middle", wrong + " " + sig1 + " v2,AAAA", true},
		{"right last", wrong + " v2,AAAA " + wrong + " " + sig1, true},
		{"all wrong", wrong + " v2,AAAA", false},
		{"empty value", "v1,", false},
		{"version alone", "v1", false},
		{"right value under another version", "v2" + strings.TrimPrefix(sig1, "v1"), false},
		{"right value as v1a", "v1a" + strings.TrimPrefix(sig1, "v1"), false},
		{"not base64", "v1,!!!!", false},
		{"cut", sig1[:len(sig1)-4], false},
	} {
		err := webhook.Verify(keys, signed(id1, ts1, c.list), []byte(body1), now)
		if c.ok {
			require.NoError(t, err, c.name)
		} else {
			require.ErrorIs(t, err, webhook.ErrSignature, c.name)
		}
	}
	// Any one of the keys is enough.
	require.NoError(t, webhook.Verify([]webhook.Key{key(t, secret2), keys[0]}, signed(id1, ts1, sig1), []byte(body1), now))
	require.ErrorIs(t, webhook.Verify([]webhook.Key{key(t, secret2)}, signed(id1, ts1, sig1), []byte(body1), now), webhook.ErrSignature)
	require.ErrorIs(t, webhook.Verify(nil, signed(id1, ts1, sig1), []byte(body1), now), webhook.ErrSignature)
	require.ErrorIs(t, webhook.Verify(keys, signed(id1, ts1, sig1), []byte(body1+"\n"), now), webhook.ErrSignature)
	require.ErrorIs(t, webhook.Verify(keys, signed(id1, ts1+1, sig1), []byte(body1), now), webhook.ErrSignature)
	require.ErrorIs(t, webhook.Verify(keys, signed("a.b", ts1, sig1), []byte(body1), now), webhook.ErrSignature)
}

func TestVerifyTolerance(t *testing.T) {
	t.Parallel()
	keys := []webhook.Key{key(t, secret1)}
	h := signed(id1, ts1, sig1)
	for offset, ok := range map[int64]bool{0: true, 300: true, -300: true, 301: false, -301: false, 1 << 40: false} {
		err := webhook.Verify(keys, h, []byte(body1), time.Unix(ts1+offset, 0))
		if ok {
			require.NoError(t, err, offset)
		} else {
			require.ErrorIs(t, err, webhook.ErrTimestamp, offset)
		}
	}
	for _, bad := range []string{"x", "1614265330.0", "+1614265330", " ", "01614265330", "99999999999999999999"} {
		h := signed(id1, ts1, sig1)
		h.Set("webhook-timestamp", bad)
		require.ErrorIs(t, webhook.Verify(keys, h, []byte(body1), time.Unix(ts1, 0)), webhook.ErrTimestamp, bad)
	}
}

func TestVerifyNeedsEveryHeader(t *testing.T) {
	t.Parallel()
	for _, missing := range []string{"webhook-id", "webhook-timestamp", "webhook-signature"} {
		h := signed(id1, ts1, sig1)
		h.Del(missing)
		require.ErrorIs(t, webhook.Verify([]webhook.Key{key(t, secret1)}, h, []byte(body1), time.Unix(ts1, 0)), webhook.ErrUnsigned, missing)
	}
}

func TestEmptyBodySignsAndVerifies(t *testing.T) {
	t.Parallel()
	keys := []webhook.Key{key(t, secret1)}
	s, err := webhook.Sign(keys, id1, ts1, nil)
	require.NoError(t, err)
	require.NoError(t, webhook.Verify(keys, signed(id1, ts1, s), nil, time.Unix(ts1, 0)))
}

func TestParseKeyRefusesWithoutShowing(t *testing.T) {
	t.Parallel()
	mixed := base64.StdEncoding.EncodeToString(append(make([]byte, 32), []byte("canarycanarycanarycanarycanary12")...))
	for _, text := range []string{
		"", "whsec_", "canary not base64", "whsec_Y2FuYXJ5", // 6 bytes
		"whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 65)),
		"whsk_" + base64.StdEncoding.EncodeToString(make([]byte, 32)),
		"whsk_" + mixed, "whpk_Y2FuYXJ5", "whsk_canary!", "whpk_canary!",
	} {
		_, err := webhook.ParseKey(handlers.NewSecret(text))
		require.Error(t, err, text)
		require.NotContains(t, err.Error(), "canary")
		require.NotContains(t, err.Error(), "Y2FuYXJ5")
	}
	k := key(t, secret1)
	raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret1, "whsec_"))
	require.NoError(t, err)
	require.NotContains(t, fmt.Sprintf("%v %+v %#v", k, k, k), string(raw))
}

func TestSignRefuses(t *testing.T) {
	t.Parallel()
	_, err := webhook.Sign([]webhook.Key{key(t, secret1)}, "a.b", ts1, nil)
	require.ErrorContains(t, err, "dot")
	_, err = webhook.Sign([]webhook.Key{key(t, whpk4)}, id1, ts1, nil)
	require.ErrorContains(t, err, "only verify")
	_, err = webhook.Sign(nil, id1, ts1, nil)
	require.Error(t, err)
}
