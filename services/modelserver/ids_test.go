package modelserver_test

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/internal/testenv/wait"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
)

// Of an id beyond 48 bits a row could only be found for whoever has its lower bits.
func TestIDsThatNameSomebodyElseAreRefused(t *testing.T) {
	w := newWorld(t)
	w.export(1, 2, 0)
	s, subs := w.one(2)
	s.mustLoad(1, subs...)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	wait.Until(t, "ids within their range", func() error { return s.check([]int64{0, 1<<48 - 1}, []int64{1<<48 - 1, 0}) })
	for _, id := range []int64{-1, 1 << 48, 1<<48 + 5, -(1<<48 - 5), math.MinInt64, math.MaxInt64} {
		for name, ask := range map[string]func() (codes.Code, string){
			"gRPC": func() (codes.Code, string) {
				_, err := s.scores([]int64{1, id}, []int64{3, 4})
				return status.Code(err), status.Convert(err).Message()
			},
			"tensor_content": func() (codes.Code, string) {
				var b []byte
				for _, x := range []int64{1, id} {
					for i := range 8 {
						b = append(b, byte(uint64(x)>>(8*i)))
					}
				}
				req := request(nil, []int64{3, 4})
				user := tfserving.NewInt64(nil, 2)
				user.TensorContent = b
				req.Inputs["user"] = user
				_, err := s.predict.Predict(testContext(t), req)
				return status.Code(err), status.Convert(err).Message()
			},
			"REST": func() (codes.Code, string) {
				code, body := post(t, s, "/v1/models/ranker:predict", fmt.Sprintf(`{"instances":[{"user":1,"movie":3},{"user":%d,"movie":4}]}`, id))
				if code == http.StatusBadRequest {
					return codes.InvalidArgument, strings.ReplaceAll(body, `\"`, `"`)
				}
				return codes.Unknown, body
			},
		} {
			code, message := ask()
			if want := fmt.Sprintf(`input "user", row 1: id %d is outside`, id); code != codes.InvalidArgument || !strings.Contains(message, want) {
				t.Errorf("%s, id %d: %v %s; want INVALID_ARGUMENT saying %s", name, id, code, message, want)
			}
		}
	}
}
