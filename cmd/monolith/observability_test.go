package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/loadtest/scenario"
)

// series is a metric as an alert, a dashboard or a test of the alerts names it.
type series struct {
	file, name string
	labels     []string // as it is named in a test of the alerts
}

// observedSeries are those that deploy/observability names. That its expressions parse and
// its alerts fire is held by the tests beside it, with Prometheus's own code.
func observedSeries(t testing.TB) (all []series) {
	t.Helper()
	named := regexp.MustCompile(`\bmonolith_[a-z0-9_]+`)
	given := regexp.MustCompile(`(monolith_[a-z0-9_]+)\{([^}]*)\}', values`)
	label := regexp.MustCompile(`([a-z_]+)="`)
	for _, pattern := range []string{"*.yaml", "dashboards/*.json"} {
		files, err := filepath.Glob(filepath.Join(repository, "deploy", "observability", pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %v", pattern, files, err)
		}
		for _, path := range files {
			text := read(t, path)
			for _, name := range named.FindAllString(text, -1) {
				all = append(all, series{file: path, name: name})
			}
			for _, m := range given.FindAllStringSubmatch(text, -1) {
				s := series{file: path, name: m[1]}
				for _, l := range label.FindAllStringSubmatch(m[2], -1) {
					s.labels = append(s.labels, l[1])
				}
				all = append(all, s)
			}
		}
	}
	return all
}

// family is the metric that a series belongs to.
func family(name string) string {
	for _, made := range []string{"_bucket", "_sum", "_count"} {
		name = strings.TrimSuffix(name, made)
	}
	return name
}

// observed waits until a page of metrics has all series that alerts and dashboards name, with
// the labels that the alerts' tests give them. A problem is shown while it lasts alone.
func (w *opsWorld) observed(url string) {
	w.t.Helper()
	w.rate(1000) // the AUC takes a hundred of a trainer
	w.learnt()
	client, err := scenario.Dial(w.entry)
	w.must("dial the entry", err)
	defer client.Close()
	_, err = predictPairs(client, w.soon(), host.ModelName, "observed", []int64{1}, []int64{1}) // its id leaves impressions
	w.must("Predict", err)
	w.publish(w.plain(), "monolith.demo.model.movies.request", []byte("{")) // parked by its owner
	w.until("the series of alerts and dashboards", func() (bool, string) {
		_, page, err := opsGet(w.ctx, url+"/metrics")
		lines := strings.Split(page, "\n")
		var lacks []string
		for _, s := range observedSeries(w.t) {
			if s.name != "monolith_problem" && !slices.ContainsFunc(lines, s.shown) {
				lacks = append(lacks, fmt.Sprint(s.name, s.labels))
			}
		}
		if !strings.Contains(page, `name="auc"`) {
			lacks = append(lacks, "the AUC")
		}
		slices.Sort(lacks)
		return err == nil && len(lacks) == 0, fmt.Sprint(slices.Compact(lacks), err)
	})
}

// shown says whether a line of a page of metrics is of this series. Prometheus adds the
// namespace and the instance, and calls a label job of the process exported_job.
func (s series) shown(line string) bool {
	rest, ok := strings.CutPrefix(line, s.name)
	if !ok || !strings.HasPrefix(rest, "{") && !strings.HasPrefix(rest, " ") {
		return false
	}
	for _, l := range s.labels {
		if l == "exported_job" {
			l = "job"
		}
		if l != "instance" && l != "namespace" && !strings.Contains(rest, l+`="`) {
			return false
		}
	}
	return true
}
