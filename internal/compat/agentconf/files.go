package agentconf

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/monolith-go/monolith/internal/compat/instances"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
)

// defaultThreads is how many a session has where neither the file nor MY_CPU_LIMIT says.
const defaultThreads = 16

// Platform is the file that says how TensorFlow runs sessions. Batches of inputs whose first sizes
// differ are a field that ByteDance's binary alone knows.
func (d *Deployment) Platform(original bool) string {
	threads := cmp.Or(d.CPULimit, defaultThreads)
	var b strings.Builder
	f := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	f("platform_configs {\n  key: \"tensorflow\"\n  value {\n    source_adapter_config {")
	f("      [type.googleapis.com/tensorflow.serving.SavedModelBundleSourceAdapterConfig] {\n        legacy_config {")
	f("          session_config {\n            intra_op_parallelism_threads: %d\n            inter_op_parallelism_threads: %d",
		cmp.Or(d.TensorflowIntraOpParallelism, threads), cmp.Or(d.TensorflowInterOpParallelism, threads))
	f("            allow_soft_placement: true\n            gpu_options {\n              allow_growth: %v\n            }\n          }", d.AllowGrowth)
	if d.DenseAlone && d.EnableBatching {
		f("          batching_parameters {")
		for _, p := range []struct {
			name  string
			value int
		}{{"max_batch_size", 1024}, {"batch_timeout_micros", 800}, {"max_enqueued_batches", 100000}, {"num_batch_threads", 8}} {
			f("            %s {\n              value: %d\n            }", p.name, p.value)
		}
		if original {
			f("            support_diff_dim_size_inputs: true")
		}
		f("          }")
	}
	f("          enable_model_warmup: %v\n        }\n      }\n    }\n  }\n}", d.EnableModelWarmup)
	return b.String()
}

// Models are what a server is told to serve.
func (d *Deployment) Models(kind string) ([]tfserving.Model, error) {
	policy, err := d.policy()
	if err != nil {
		return nil, err
	}
	var all []tfserving.Model
	add := func(name, base string) {
		all = append(all, tfserving.Model{Name: name, BasePath: path.Join(base, name), Policy: policy})
	}
	rough := path.Join(d.RoughSortModelLocalPath, d.RoughSortModelName)
	switch kind {
	case PS:
		for _, i := range d.Shards() {
			name := "ps_" + strconv.Itoa(i)
			add(name, d.BasePath)
			if d.roughSort(PS) {
				add("ps_item_embedding_"+strconv.Itoa(i), rough)
			}
		}
		return all, nil
	case Entry:
		add("entry", d.BasePath)
	case Dense:
		add("dense_0", d.BasePath)
	default:
		return nil, nil // what a layout offers is written later
	}
	switch {
	case d.RoughSortConstrained && d.RoughSortModelLoadedServer == Entry && kind == Entry:
		add("entry_item_embedding_0", d.BasePath)
	case d.roughSort(kind):
		add(kind+"_item_embedding_0", rough)
	}
	return all, nil
}

// roughSort says whether a server of kind serves the model for rough sorting from its local path.
func (d *Deployment) roughSort(kind string) bool {
	constrained := d.RoughSortConstrained && kind == Entry // which takes it from the exports
	return d.RoughSortModelName != "" && d.RoughSortModelLoadedServer == kind && !constrained
}

// BringsRoughSort says whether the model for rough sorting is to be brought from where it is downloaded: one of the
// servers serves it, or a layout may.
func (d *Deployment) BringsRoughSort() bool {
	return d.RoughSortModelName != "" && d.RoughSortModelP2PPath != "" &&
		(d.Type == Unified || slices.ContainsFunc(d.Servers(), d.roughSort))
}

// policy is which versions are served. TensorFlow Serving has no latest_once: it is latest here.
func (d *Deployment) policy() (tfserving.Policy, error) {
	switch d.VersionPolicy {
	case "latest", "latest_once":
		return tfserving.Policy{Latest: d.VersionData}, nil
	case "all":
		return tfserving.Policy{All: true}, nil
	case "specific":
		return tfserving.Policy{Versions: []int64{int64(d.VersionData)}}, nil
	}
	return tfserving.Policy{}, fmt.Errorf("agent.conf: version_policy: %s is not allowed! Give latest, latest_once, all or specific", d.VersionPolicy)
}

// noModels is a server's file before a layout has offered anything.
const noModels = "model_config_list {}\n"

// ModelConfig is the file of a server's models.
func (d *Deployment) ModelConfig(kind string) (string, error) {
	models, err := d.Models(kind)
	if err != nil || models == nil {
		return noModels, err
	}
	text, err := instances.Text(tfserving.Config(models...))
	return string(text), err
}
