package cli

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// fakeTree is a tree by path.
type fakeTree map[string]string

func (f fakeTree) get(path string) ([]byte, bool, error) { d, ok := f[path]; return []byte(d), ok, nil }
func (f fakeTree) close()                                {}

func (f fakeTree) children(path string) (names []string, ok bool, err error) {
	seen := map[string]bool{}
	for p := range f {
		if rest, below := strings.CutPrefix(p, path+"/"); below {
			name, _, _ := strings.Cut(rest, "/")
			seen[name], ok = true, true
		}
	}
	return slices.Sorted(maps.Keys(seen)), ok || f.has(path), nil
}

func (f fakeTree) has(path string) bool { _, ok := f[path]; return ok }

func TestBzidInfo(t *testing.T) {
	config := func(sub, policy string) string {
		return fmt.Sprintf(`{"model_base_path": "/d/%s", "version_policy": "%s"}`, sub, policy)
	}
	info, err := bzidInfo(fakeTree{
		"/gip/saved_models/ffm/entry": config("entry", "latest"), "/gip/saved_models/ffm/ps_0": config("ps_0", "latest_once"),
		"/gip/layouts/l1/ffm:ps_0": "", "/gip/layouts/l1/ffm:entry": "", "/gip/layouts/l2": "",
		"/gip/binding/ffm/entry:psm;lq;default:pod-1": "", "/gip/binding/ffm/gone_0:psm;lq;default:pod-1": "",
		"/gip/container_service/psm;lq;default:pod-1": `{"grpc": "10.0.0.1:4003"}`,
	}, "gip")
	if err != nil {
		t.Fatal(err)
	}
	want := `{
  "model_info": {
    "ffm": {
      "entry": {
        "deploy_config": "{\"model_base_path\": \"/d/entry\", \"version_policy\": \"latest\"}",
        "bindings": [
          "psm;lq;default:pod-1"
        ]
      },
      "ps_0": {
        "deploy_config": "{\"model_base_path\": \"/d/ps_0\", \"version_policy\": \"latest_once\"}",
        "bindings": []
      },
      "sub_graphs_available": 1,
      "sub_graphs_total": 2
    }
  },
  "container_info": {
    "psm;lq;default": {
      "pod-1": {
        "service_info": "{\"grpc\": \"10.0.0.1:4003\"}",
        "saved_models": [
          "ffm:entry",
          "ffm:gone_0"
        ]
      }
    }
  },
  "layout_info": {
    "l1": [
      "ffm:entry",
      "ffm:ps_0"
    ],
    "l2": []
  }
}`
	if got := pyDumps(info, ""); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	var human bytes.Buffer
	if err := humanInfo(&human, "gip", info); err != nil || human.String() != "model ffm: 1 of 2 sub-graphs are served\n  entry  /d/entry (latest)  served by 1\n  ps_0  /d/ps_0 (latest_once)  served by 0\n"+
		"container psm;lq;default:pod-1 serves [ffm:entry ffm:gone_0]\nlayout l1 holds [ffm:entry ffm:ps_0]\nlayout l2 holds []\n" {
		t.Errorf("%v\n%s", err, human.String())
	}
}
