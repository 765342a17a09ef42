package servables

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/monolith-go/monolith/services/modelserver/rows"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

type state = apis.ModelVersionStatus_State

const (
	stateStart     = apis.ModelVersionStatus_START
	stateLoading   = apis.ModelVersionStatus_LOADING
	stateAvailable = apis.ModelVersionStatus_AVAILABLE
	stateUnloading = apis.ModelVersionStatus_UNLOADING
	stateEnd       = apis.ModelVersionStatus_END
)

// version is one version of one configured model. The mutex of servables guards what is not
// fixed when it is made.
type version struct {
	name     string // as configured: {model}:{sub}
	model    string
	sub      string // entry, or ps_<shard>
	shard    int    // -1: entry
	number   int64
	basePath string

	state    state
	err      *loadError // why it ended; nil: it was unloaded
	modTime  time.Time  // of its directory when it failed: a change of it is a new try
	data     *servable
	begunAt  uint64      // orders the loads
	endedAt  uint64      // orders the forgetting
	settled  bool        // all that it needs to answer is there: others may go
	unwanted time.Time   // since when it only answers who still asks for it; zero: it is wanted
	retried  int         // how often it was tried again by itself
	failedAt time.Time   // when it could not be loaded
	held     []*servable // what was read for it, and not released yet; its own goroutine's
	stop     context.CancelFunc
	unloaded bool // stop was called
}

// loading says that v does not answer yet, and may.
func (v *version) loading() bool { return v.state == stateStart || v.state == stateLoading }

// byTensorFlow is the way of what the built-in model server does not serve.
const byTensorFlow = "have TensorFlow Serving serve it, by --binary of an agent, --command of a tfs-supervisor, or TENSORFLOW_MODEL_SERVER"

// splitName takes {model}:{sub} apart; a name without a sub-model is an entry, or by the name of a shard
// one of the only model, which then has no name.
func splitName(name string) (model, sub string, shard int, err error) {
	i := strings.LastIndexByte(name, ':')
	if i < 0 {
		if _, ok := shardNumber(name); !ok {
			return name, "entry", -1, nil
		}
	}
	model, sub = name[:max(i, 0)], name[i+1:]
	if i == 0 {
		return "", "", 0, fmt.Errorf("model name %q has nothing in front of the colon; write {model}:{sub-model}", name)
	}
	if sub == "entry" {
		return model, sub, -1, nil
	}
	if n, ok := shardNumber(sub); ok {
		return model, sub, n, nil
	}
	return "", "", 0, fmt.Errorf("sub-model %q of %q is not served here: the built-in model server has entry and ps_<shard>; name it so, or %s", sub, model, byTensorFlow)
}

// split is splitName with the model that names without one belong to.
func (s *Manager) split(name string) (model, sub string, shard int, err error) {
	if _, isShard := shardNumber(name); s.of != "" && (isShard || name == "entry") {
		name = s.of + ":" + name
	}
	return splitName(name)
}

// shardNumber is that of ps_<n>.
func shardNumber(sub string) (n int, ok bool) {
	digits, ok := strings.CutPrefix(sub, "ps_")
	n, err := strconv.Atoi(digits)
	return n, ok && err == nil && n >= 0 && n < rows.MaxShards && strconv.Itoa(n) == digits
}
