// Package observability_test holds the alert rules and the dashboard against Prometheus's own
// parser and engine: an expression that does not parse, or an alert that never fires, fails here.
package observability_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"sigs.k8s.io/yaml"
)

const (
	alerts  = "alerts.yaml"
	runbook = "https://github.com/monolith-go/monolith/blob/main/docs/operations.md#"
)

// unitTests is a file of promtool's, as much of it as alerts_test.yaml uses.
type unitTests struct {
	RuleFiles          []string       `json:"rule_files"`
	EvaluationInterval model.Duration `json:"evaluation_interval"`
	Tests              []unitTest     `json:"tests"`
}

type unitTest struct {
	Name        string         `json:"name"`
	Interval    model.Duration `json:"interval"`
	InputSeries []struct {
		Series string `json:"series"`
		Values string `json:"values"`
	} `json:"input_series"`
	AlertRuleTest []alertTest `json:"alert_rule_test"`
}

type alertTest struct {
	Alertname string         `json:"alertname"`
	EvalTime  model.Duration `json:"eval_time"`
	ExpAlerts []struct {
		ExpLabels      map[string]string `json:"exp_labels"`
		ExpAnnotations map[string]string `json:"exp_annotations"`
	} `json:"exp_alerts"`
}

// TestRules runs alerts_test.yaml as promtool test rules does, and holds that it lets each
// alert fire once and not fire once.
func TestRules(t *testing.T) {
	raw, err := os.ReadFile("alerts_test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file unitTests
	if err := yaml.UnmarshalStrict(raw, &file); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(file.RuleFiles, []string{alerts}) {
		t.Fatalf("the tests are of %v", file.RuleFiles)
	}
	fires, rests := map[string]bool{}, map[string]bool{}
	for _, u := range file.Tests {
		t.Run(u.Name, func(t *testing.T) { u.run(t, time.Duration(file.EvaluationInterval)) })
		for _, c := range u.AlertRuleTest {
			if len(c.ExpAlerts) > 0 {
				fires[c.Alertname] = true
			} else {
				rests[c.Alertname] = true
			}
		}
	}
	for _, r := range alertRules(t) {
		if !fires[r.Alert] || !rests[r.Alert] {
			t.Errorf("%s: alerts_test.yaml must show when it fires (%v) and when it does not (%v)", r.Alert, fires[r.Alert], rests[r.Alert])
		}
	}
}

// run evaluates all rules at each interval and compares what fires.
func (u unitTest) run(t *testing.T, every time.Duration) {
	load := fmt.Sprintf("load %s\n", u.Interval)
	for _, s := range u.InputSeries {
		load += fmt.Sprintf("  %s %s\n", s.Series, s.Values)
	}
	suite, err := promqltest.NewLazyLoader(load, promqltest.LazyLoaderOpts{EnableAtModifier: true, EnableNegativeOffset: true})
	if err != nil {
		t.Fatal(err)
	}
	defer suite.Close()
	suite.SubqueryInterval = every
	groups, errs := rules.NewManager(&rules.ManagerOptions{
		QueryFunc: rules.EngineQueryFunc(suite.QueryEngine(), suite.Storage()), Appendable: suite.Storage(), Context: context.Background(),
		NotifyFunc: func(context.Context, string, ...*rules.Alert) {}, Logger: slog.New(slog.DiscardHandler), Parser: parser.NewParser(parser.Options{}),
	}).LoadGroups(every, labels.EmptyLabels(), "", nil, false, alerts)
	if errs != nil {
		t.Fatal(errs)
	}
	var last time.Duration
	for _, c := range u.AlertRuleTest {
		last = max(last, time.Duration(c.EvalTime))
	}
	for at := time.Duration(0); at <= last; at += every {
		now := time.Unix(0, 0).UTC().Add(at)
		suite.WithSamplesTill(now, func(err error) {
			if err != nil {
				t.Fatal(err)
			}
			for _, g := range groups {
				g.Eval(suite.Context(), now)
			}
		})
		for _, c := range u.AlertRuleTest {
			if time.Duration(c.EvalTime) == at {
				c.check(t, groups)
			}
		}
	}
}

// check compares the alerts of one name that fire now.
func (c alertTest) check(t *testing.T, groups map[string]*rules.Group) {
	t.Helper()
	var got, want []string
	for _, g := range groups {
		for _, r := range g.Rules() {
			if err := r.LastError(); err != nil {
				t.Errorf("%s at %s: %v", r.Name(), c.EvalTime, err)
			}
			alert, ok := r.(*rules.AlertingRule)
			if !ok || r.Name() != c.Alertname {
				continue
			}
			for _, a := range alert.ActiveAlerts() {
				if a.State == rules.StateFiring {
					got = append(got, fmt.Sprint(a.Labels, a.Annotations))
				}
			}
		}
	}
	for _, a := range c.ExpAlerts {
		l := maps.Clone(a.ExpLabels)
		l[labels.AlertName] = c.Alertname
		want = append(want, fmt.Sprint(labels.FromMap(l), labels.FromMap(a.ExpAnnotations)))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s at %s:\n got %s\nwant %s", c.Alertname, c.EvalTime, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}

// alertRules are all rules of alerts.yaml, which must be alerts.
func alertRules(t *testing.T) (all []rulefmt.Rule) {
	t.Helper()
	groups, errs := rulefmt.ParseFile(alerts, false, model.LegacyValidation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	if errs != nil {
		t.Fatal(errs)
	}
	for _, g := range groups.Groups {
		all = append(all, g.Rules...)
	}
	return all
}
