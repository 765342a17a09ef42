// Package doctor looks at a deployment as a person would at three in the morning, and says of
// each thing whether it is well, what is wrong, how to mend it, and where that is explained.
// It changes nothing.
package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/internal/host/connect"
	"github.com/monolith-go/monolith/internal/host/otlp"
	"github.com/monolith-go/monolith/internal/process/flags"
)

// Finding is one thing that was looked at.
type Finding struct {
	Check string `json:"check"` // "stream MONOLITH"
	OK    bool   `json:"ok"`
	Says  string `json:"says"`           // a sentence
	Mend  string `json:"mend,omitempty"` // what to do; empty: nothing
	See   string `json:"see,omitempty"`  // where that is explained
}

// Config says what is looked at.
type Config struct {
	Conn     connect.Config
	Kafka    string // brokers; "": none
	Access   kafka.Credentials
	Topics   []string      // that Kafka should have
	Dir      string        // data folder of this machine; one that is not there is no finding
	Monitor  string        // URL of the NATS server's monitoring port; "": its settings cannot be seen
	OTLP     otlp.Config   // of the collector; none: not looked at
	Patience time.Duration // for one answer; default 10 s
}

// Register binds the flags, all but the topics'.
func (c *Config) Register(fs *pflag.FlagSet) {
	c.Conn.Register(fs)
	fs.StringVar(&c.Kafka, "kafka", flags.Env("MONOLITH_KAFKA", "127.0.0.1:9092"), "Kafka `brokers` (MONOLITH_KAFKA); empty: not looked at")
	c.Access.Register(fs)
	fs.StringVar(&c.Dir, "dir", "monolith-data", "data `folder` of this machine, whose disk is looked at")
	fs.StringVar(&c.Monitor, "nats-monitor", "", "`URL` of the NATS server's monitoring port, such as http://127.0.0.1:8222, which tells its settings")
	c.OTLP.Register(fs)
	fs.DurationVar(&c.Patience, "patience", 10*time.Second, "how long one answer is waited for")
}

// operations is the page that findings lead to.
const operations = "docs/operations.md"

// examination gathers findings.
type examination struct {
	cfg      Config
	findings []Finding
}

func (e *examination) well(check, format string, args ...any) {
	e.findings = append(e.findings, Finding{Check: check, OK: true, Says: fmt.Sprintf(format, args...)})
}

// ill notes what is wrong; section is the heading of docs/operations.md that explains it.
func (e *examination) ill(check, says, mend, section string) {
	e.findings = append(e.findings, Finding{Check: check, Says: says, Mend: mend, See: operations + "#" + section})
}

// Examine looks at everything. A part that cannot be reached is a finding, not an error.
func Examine(ctx context.Context, cfg Config) []Finding {
	if cfg.Patience <= 0 {
		cfg.Patience = 10 * time.Second
	}
	e := &examination{cfg: cfg}
	e.logs(ctx)
	e.kafka(ctx)
	e.disk()
	e.otlp(ctx)
	return e.findings
}

// Wrong counts what is not well.
func Wrong(all []Finding) (n int) {
	for _, f := range all {
		if !f.OK {
			n++
		}
	}
	return n
}

// Print writes the findings, what is wrong last, where a terminal shows it.
func Print(w io.Writer, all []Finding, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		return enc.Encode(all)
	}
	for _, ok := range []bool{true, false} {
		for _, f := range all {
			if f.OK != ok {
				continue
			}
			word := "ok"
			if !ok {
				word = "WRONG"
			}
			if _, err := fmt.Fprintf(w, "%-5s %-24s %s\n", word, f.Check, f.Says); err != nil {
				return err
			}
			if ok {
				continue
			}
			if _, err := fmt.Fprintf(w, "      mend: %s (%s)\n", f.Mend, f.See); err != nil {
				return err
			}
		}
	}
	return nil
}
