package jobs

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/internal/compat/instances"
	"github.com/monolith-go/monolith/internal/wire/matrixpb"
)

// TestFeaturesCommand: batches are printed as the original's text and as JSON; a file that is cut says where.
func TestFeaturesCommand(t *testing.T) {
	record, err := proto.Marshal(&matrixpb.ExampleBatch{BatchSize: 1, NamedFeatureList: []*matrixpb.NamedFeatureList{{
		Name: "user", Feature: []*matrixpb.Feature{{Type: &matrixpb.Feature_FidV2List{FidV2List: &matrixpb.FidList{Value: []uint64{1<<48 | 7}}}}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	framing := instances.Framing{LagrangeX: true}
	whole := framing.Append(framing.Append(nil, record), record)
	path := filepath.Join(t.TempDir(), "chief_1.pb")
	run := func(content []byte, args ...string) (string, error) {
		t.Helper()
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		cmd := FeaturesCommand()
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		cmd.SetArgs(append(args, path))
		err := cmd.Execute()
		return strings.ReplaceAll(out.String(), "  ", " "), err
	}
	if got, err := run(whole); err != nil || strings.Count(got, "fid_v2_list") != 2 || !strings.Contains(got, "value: 281474976710663") {
		t.Errorf("text: %s, %v", got, err)
	}
	if got, err := run(whole, "--json"); err != nil || strings.Count(got, "\n") != 2 || !strings.Contains(got, `"281474976710663"`) {
		t.Errorf("JSON: %s, %v", got, err)
	}
	if got, err := run(whole[:len(whole)-3]); err == nil || !strings.Contains(err.Error(), "batch 2: unexpected EOF") || strings.Count(got, "fid_v2_list") != 1 {
		t.Errorf("a file that is cut: %s, %v", got, err)
	}
	if got, err := run(framing.Append(nil, []byte("no message"))); err == nil || !strings.Contains(err.Error(), "batch 1: ") {
		t.Errorf("no message: %s, %v", got, err)
	}
	if got, err := run(nil); err != nil || got != "" {
		t.Errorf("an empty file, of which the original writes some: %q, %v", got, err)
	}
}
