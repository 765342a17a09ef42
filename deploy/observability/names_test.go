package observability_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
)

// foreign are metrics of others: Prometheus itself, the kubelet, and Go's collectors, which
// every role has.
var foreign = regexp.MustCompile(`^(up|kubelet_volume_stats_(available|capacity)_bytes|go_[a-z_]+|process_[a-z_]+)$`)

// panel is a panel of a dashboard, or a row of them.
type panel struct {
	ID      int     `json:"id"`
	Title   string  `json:"title"`
	Type    string  `json:"type"`
	Panels  []panel `json:"panels"`
	GridPos struct{ H, W, X, Y int }
	Targets []struct{ Expr, RefID string }
}

// TestExpressions parses every expression of the alerts and dashboards. That the roles have
// the metrics of ours which are named here is held by cmd/monolith's TestStackStatus.
func TestExpressions(t *testing.T) {
	names := map[string]bool{}
	for _, r := range alertRules(t) {
		metrics(t, r.Alert, r.Expr, names)
	}
	files, err := filepath.Glob("dashboards/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("dashboards: %v, %v", files, err)
	}
	for _, path := range files {
		for _, p := range panels(t, path) {
			for _, target := range p.Targets {
				expr := strings.NewReplacer("$__rate_interval", "5m", "$namespace", "all").Replace(target.Expr)
				metrics(t, path+": "+p.Title, expr, names)
			}
		}
	}
	for name := range names {
		if !strings.HasPrefix(name, "monolith_") && !foreign.MatchString(name) {
			t.Errorf("%s is neither a metric of ours nor of those that stand in foreign", name)
		}
	}
	if len(names) < 40 {
		t.Errorf("only %d metrics are named: %v", len(names), slices.Sorted(maps.Keys(names)))
	}
}

// metrics adds the names that an expression selects by.
func metrics(t *testing.T, where, expr string, names map[string]bool) {
	t.Helper()
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		t.Errorf("%s: %s: %v", where, expr, err)
		return
	}
	found := false
	parser.Inspect(parsed, func(n parser.Node, _ []parser.Node) error {
		if s, ok := n.(*parser.VectorSelector); ok {
			found = true
			names[s.Name] = true
		}
		return nil
	})
	if !found {
		t.Errorf("%s: %s selects nothing", where, expr)
	}
}

// panels are those of a dashboard that show something. None may lie over another one.
func panels(t *testing.T, path string) (all []panel) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		UID, Title string
		Panels     []panel
	}
	if err := json.Unmarshal(raw, &d); err != nil || d.UID == "" || d.Title == "" {
		t.Fatalf("%s: uid %q, title %q, %v", path, d.UID, d.Title, err)
	}
	ids, cells := map[int]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if ids[p.ID] {
			t.Errorf("%s: two panels have the id %d", path, p.ID)
		}
		ids[p.ID] = true
		for y := range p.GridPos.H {
			for x := range p.GridPos.W {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if other, taken := cells[at]; taken || at[0] >= 24 {
					t.Fatalf("%s: %q lies over %q or beyond the grid", path, p.Title, other)
				}
				cells[at] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if len(p.Targets) == 0 {
			t.Errorf("%s: %q shows nothing", path, p.Title)
		}
		all = append(all, p)
	}
	return all
}

// TestRunbooks holds that each alert leads to a heading of docs/operations.md, and that its
// table "Alerts" has exactly these alerts, in this order, with the same links.
func TestRunbooks(t *testing.T) {
	raw, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	anchors := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(string(raw), -1) {
		anchors[regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(m[1]), "")] = true
	}
	var documented []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(Monolith\\w+)` \\| [^|]+ \\| \\[[^|]+\\]\\((#[a-z0-9-]+)\\)[^|]* \\|$").FindAllStringSubmatch(string(raw), -1) {
		documented = append(documented, m[1]+m[2])
	}
	var named []string
	for _, r := range alertRules(t) {
		link, ok := strings.CutPrefix(r.Annotations["runbook_url"], runbook)
		if !ok || !anchors[strings.ReplaceAll(link, "-", " ")] {
			t.Errorf("%s: its runbook_url %q leads to no heading of docs/operations.md", r.Alert, r.Annotations["runbook_url"])
		}
		if severity := r.Labels["severity"]; severity != "critical" && severity != "warning" || r.Annotations["summary"] == "" {
			t.Errorf("%s: severity %q, summary %q", r.Alert, severity, r.Annotations["summary"])
		}
		named = append(named, r.Alert+"#"+link)
	}
	if !slices.Equal(documented, named) {
		t.Errorf("the table of docs/operations.md has\n%s\nalerts.yaml has\n%s", strings.Join(documented, "\n"), strings.Join(named, "\n"))
	}
}
