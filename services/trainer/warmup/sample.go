package warmup

import (
	"cmp"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/internal/model/impression"
	"github.com/monolith-go/monolith/internal/model/warmupfile"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

// sample makes the newest n answers that can be asked for again into a file, the oldest of them first. An
// answer of which rows were not read is asked for with the others.
func (a *answers) sample(n int) (*Sample, error) {
	s := &Sample{}
	var requests []*apis.PredictRequest
	size := 0
	for _, of := range slices.SortedFunc(maps.Keys(a.rows), newestFirst) {
		if len(requests) == n {
			break
		}
		var rows []*impression.Impression
		for _, row := range slices.Sorted(maps.Keys(a.rows[of])) {
			rows = append(rows, a.rows[of][row])
		}
		r, err := request(a.spec, rows)
		if err != nil {
			s.LeftOut, s.Because = s.LeftOut+1, err
			continue
		}
		if size+proto.Size(r) > maxFile {
			break
		}
		size += proto.Size(r)
		requests = append(requests, r)
	}
	slices.Reverse(requests)
	s.Requests = len(requests)
	var err error
	s.File, err = warmupfile.Encode(requests)
	return s, err
}

func newestFirst(a, b answer) int {
	return cmp.Or(cmp.Compare(b.timeUS, a.timeUS), cmp.Compare(a.id, b.id), cmp.Compare(a.container, b.container))
}
