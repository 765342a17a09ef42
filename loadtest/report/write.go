package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/monolith-go/monolith/internal/durable"
)

// JSON is the report as one indented object with a newline at its end.
func (r *Report) JSON() ([]byte, error) {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	return append(data, '\n'), nil
}

// Read reads the report.json in dir.
func Read(dir string) (*Report, error) {
	data, err := os.ReadFile(filepath.Join(dir, "report.json"))
	if err != nil {
		return nil, fmt.Errorf("read the report: %w", err)
	}
	r := new(Report)
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("%s is no report of a run: %w", filepath.Join(dir, "report.json"), err)
	}
	return r, nil
}

// Write puts report.html, one .svg per plot and report.json into dir, which it makes.
// Each file appears whole or not at all; report.json comes last, so where it stands the
// others do too.
func Write(dir string, r Report) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	type file struct {
		name string
		data []byte
	}
	var files []file
	for _, p := range r.plots() {
		files = append(files, file{p.File + ".svg", []byte(standalone(p.SVG))})
	}
	var html bytes.Buffer
	if err := r.HTML(&html); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	data, err := r.JSON()
	if err != nil {
		return err
	}
	files = append(files, file{"report.html", html.Bytes()}, file{"report.json", data})
	for _, f := range files {
		write := func(to *os.File) error { _, err := to.Write(f.data); return err }
		if err := durable.Replace(filepath.Join(dir, f.name), 0o644, write); err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
	}
	return nil
}
