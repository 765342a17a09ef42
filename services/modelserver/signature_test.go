package modelserver

import (
	"testing"

	"google.golang.org/grpc/codes"
)

// Requests are counted by signature: of what is refused only those that are known.
func TestSignaturesAreCounted(t *testing.T) {
	for _, tc := range []struct {
		name string
		code codes.Code
		want string
	}{
		{"", codes.OK, "serving_default"}, {"", codes.NotFound, "serving_default"}, {"serving_default", codes.OK, "serving_default"},
		{"score", codes.OK, "score"}, {"score", codes.InvalidArgument, ""}, {"made up", codes.NotFound, ""},
		{"lookup", codes.OK, "lookup"}, {"lookup", codes.InvalidArgument, "lookup"}, {"a,b/raw_assign", codes.OK, "raw_assign"},
	} {
		if got := signature(tc.name, tc.code); got != tc.want {
			t.Errorf("signature %q of a request that is %v counts as %q, want %q", tc.name, tc.code, got, tc.want)
		}
	}
}
