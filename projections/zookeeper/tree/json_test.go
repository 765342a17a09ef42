package tree

import (
	"bytes"
	"encoding/json"
	"testing"
)

// Whatever bytes a node holds, a snapshot keeps them.
func FuzzBytes(f *testing.F) {
	for _, s := range []string{"", "{\"a\": null}", "\xff\x00", "\ufffd", "<&>\u2028", "{\"base64\":\"AA==\"}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		data, err := json.Marshal(Bytes(in))
		if err != nil {
			t.Fatal(err)
		}
		var out Bytes
		if err := json.Unmarshal(data, &out); err != nil || !bytes.Equal(in, out) {
			t.Fatalf("%q became %s became %q, %v", in, data, out, err)
		}
	})
}
