package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
		if err := replace(filepath.Join(dir, f.name), f.data); err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
	}
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return errors.Join(d.Sync(), d.Close())
}

// replace writes data beside path and renames it over path.
func replace(path string, data []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, werr := f.Write(data)
	if err := errors.Join(werr, f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
