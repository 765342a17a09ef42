package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Parse(pageText))

type tile struct {
	Name, Value, Unit, Note string
	Color                   string // CSS class of the name's mark, "" for none
	Bad                     bool   // something went wrong
}

type check struct {
	Sentence string
	OK       bool
}

type row struct{ Name, Value string }

type lagRow struct{ Lag, Online, Baseline, Margin string }

// person is a user with what it rated and what it is recommended.
type person struct {
	Name  string
	Rated []Stars
	Picks []pickRow
}

type pickRow struct {
	Place                  int
	Before, BeforeAbout    string
	After, AfterAbout, Why string
}

func (r *Report) people() (all []person) {
	for _, u := range r.Recommendations {
		x := person{Name: fmt.Sprintf("User %d", u.User), Rated: u.Rated}
		for i := range max(len(u.Before), len(u.After)) {
			p := pickRow{Place: i + 1}
			if i < len(u.Before) {
				p.Before, p.BeforeAbout = u.Before[i].Title, fmt.Sprintf("%s · %.2f", u.Before[i].About, float64(u.Before[i].Score))
			}
			if i < len(u.After) {
				p.After, p.AfterAbout, p.Why = u.After[i].Title, fmt.Sprintf("%s · %.2f", u.After[i].About, float64(u.After[i].Score)), u.After[i].moved()
			}
			x.Picks = append(x.Picks, p)
		}
		all = append(all, x)
	}
	return all
}

// pageData is what the page shows; what is empty it leaves out.
type pageData struct {
	Title, Summary, When string
	CSS                  template.CSS
	Tiles                []tile
	Checks               []check
	Plots                []figure
	Events, Rejected     []row
	EventTotal           string // "": there is no log
	Lags                 []lagRow
	Marks                []row
	People               []person
	Settings             []row
}

type figure struct {
	plot
	Draw template.HTML
}

// HTML writes the report as one page that needs nothing else: no scripts, no fonts, no
// images from anywhere.
func (r *Report) HTML(w io.Writer) error {
	data := pageData{
		Title:   "Monolith run",
		Summary: r.describe(),
		CSS:     template.CSS(plotColors + plotStyle),
		Tiles:   r.tiles(),
		Checks: []check{
			{"Folding the log again gives every live view’s hash", r.ReplayHashEqual},
			{"Serving replicas agree with the training shards, row by row", r.ReplicasAgree},
		},
		Settings: r.settings(),
	}
	if r.Predict.Calls > 0 {
		data.Checks = append(data.Checks, check{r.answered(), r.Predict.Errors == 0})
	}
	if !r.Run.Started.IsZero() {
		data.When = r.Run.Started.UTC().Format("2 January 2006, 15:04:05 UTC")
	}
	for _, p := range r.plots() {
		data.Plots = append(data.Plots, figure{p, template.HTML(p.SVG)}) // made here, its texts escaped
	}
	for _, x := range r.AUCByLag {
		data.Lags = append(data.Lags, lagRow{count(int64(x.Lag)), auc(x.Online), auc(x.Baseline), signed(x.Online - x.Baseline)})
	}
	data.Marks = happened(r.Series.Marks)
	data.People = r.people()
	total := int64(0)
	for _, c := range sorted(r.Events) {
		data.Events = append(data.Events, row{c.Name, count(c.Count)})
		total += c.Count
	}
	data.EventTotal = count(total)
	for _, c := range sorted(grouped(r.Rejected)) {
		data.Rejected = append(data.Rejected, row{c.Name, count(c.Count)})
	}
	return page.Execute(w, data)
}

// happened lists the marks.
func happened(marks []Mark) (rows []row) {
	for _, m := range marks {
		rows = append(rows, row{fmt.Sprintf("%.1f s", m.Second), m.Text})
	}
	return rows
}

func (r *Report) tiles() []tile {
	ts := []tile{{Name: "AUC online", Value: auc(r.AUCOnline), Color: "a", Note: counted(r.Run.Compared, "rating") + " of the second half" + r.pace(", ", ": ")}}
	frozen := tile{Name: "AUC frozen", Value: auc(r.AUCFrozen), Color: "b", Note: "the same ratings"}
	if r.AUCFrozen.Known() && r.AUCOnline.Known() {
		frozen.Note = signed(r.AUCFrozen-r.AUCOnline) + " against online"
	}
	ts = append(ts, frozen)
	if r.AUCBest.Known() {
		ts = append(ts, tile{Name: "AUC best possible", Value: auc(r.AUCBest), Color: "c", Note: "of the true probabilities"})
	}
	if r.baselines() {
		note := signed(r.AUCOnline-r.AUCBaseline) + " for the model, " + signed(r.AUCFrozen-r.AUCBaselineFrozen) + " frozen"
		if lag := r.lag(); lag != "" {
			note += "; both " + lag
		}
		ts = append(ts, tile{Name: "AUC of biases", Value: auc(r.AUCBaseline), Note: note})
	}
	return append(ts,
		tile{Name: "Freshness p99", Value: millis(r.Freshness.P99), Unit: "ms", Note: "p50 " + millis(r.Freshness.P50) + " ms, " + counted(r.Freshness.Samples, "sample")},
		r.predictTile(),
		tile{Name: "Ratings learnt", Value: count(r.RatingsTrained), Note: count(r.RatingsRead) + " read, " + count(r.RatingsRejected) + " rejected"},
		tile{Name: "First prediction", Value: number(r.FirstPredictionSeconds), Unit: "s", Note: "after the start"},
	)
}

func (r *Report) predictTile() tile {
	t := tile{Name: "Predict p99", Value: unknown, Note: "no load was asked for"}
	if r.Predict.Calls > 0 {
		t.Value, t.Unit = millis(r.Predict.P99), "ms"
		t.Note = fmt.Sprintf("p50 %s ms, %s calls/s, %s", millis(r.Predict.P50), number(r.Predict.Rate), counted(r.Predict.Errors, "error"))
		t.Bad = r.Predict.Errors > 0
	}
	return t
}

// answered says how many calls of the load failed, and how.
func (r *Report) answered() string {
	if r.Predict.Errors == 0 {
		return "Each of the load’s Predict calls was answered"
	}
	var codes []string
	for _, c := range sorted(r.Predict.ErrorsByCode) {
		codes = append(codes, count(c.Count)+" "+c.Name)
	}
	return fmt.Sprintf("Each of the load’s Predict calls was answered: %s of %s were not (%s)", count(r.Predict.Errors), count(r.Predict.Calls), strings.Join(codes, ", "))
}

// pace says what the AUC of a replay depends on besides the model.
func (r *Report) pace(before, between string) string {
	if !r.Run.Rate.Known() || r.Run.Rate <= 0 {
		return ""
	}
	return before + "replayed at " + number(r.Run.Rate) + " a second" + between + "a slower replay learns more before each next rating"
}

func (r *Report) settings() []row {
	var rows []row
	add := func(name, value string) {
		if value != "" && value != "0" && value != unknown {
			rows = append(rows, row{name, value})
		}
	}
	add("Ratings from", r.Run.Data)
	add("Ratings per second", number(r.Run.Rate))
	add("Seed", fmt.Sprint(r.Seed))
	add("Job", r.Run.Job)
	add("Model", r.Run.Model)
	add("Frozen copy", r.Run.FrozenModel)
	add("Model version served", fmt.Sprint(r.ModelVersion))
	add("Kafka topic", fmt.Sprintf("%s, %s", r.Run.Topic, counted(int64(r.Run.Partitions), "partition")))
	add("Trainers", fmt.Sprint(r.Run.Trainers))
	add("Training shards", fmt.Sprint(r.Run.Shards))
	add("Serving shards", fmt.Sprintf("%d, %s each", r.Run.ServeShards, counted(int64(r.Run.Replicas), "replica")))
	add("Sync interval", number(r.Run.SyncMs)+" ms")
	add("Log read up to", count(int64(r.Run.LogSeq)))
	add("Deltas read up to", count(int64(r.Run.SyncSeq)))
	add("Machine", r.Run.Machine)
	if r.Seconds.Known() {
		add("Took", (time.Duration(float64(r.Seconds) * float64(time.Second))).Round(100*time.Millisecond).String())
	}
	return rows
}
