// Package inspect says what a declared model is and what it takes, for people: a table of its
// parts, and the cost of its operations on this machine.
package inspect

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
)

// Report is what a model consists of.
type Report struct {
	Model      string     `json:"model"`
	Hash       string     `json:"hash"` // as JobStarted holds it
	Features   []Feature  `json:"features"`
	Tables     []Table    `json:"tables"`
	Outputs    []Output   `json:"outputs"`
	Layers     []Layer    `json:"layers"`
	Variables  []Variable `json:"variables"`
	Tasks      []string   `json:"tasks"`
	Added      []string   `json:"added,omitempty"` // losses of layers
	Parameters int        `json:"parameters"`      // of all variables
}

// The parts of a report.
type (
	Feature struct {
		Name  string `json:"name"`
		Field string `json:"field"`
		Slot  uint32 `json:"slot"`
		Table string `json:"table"`
	}
	Table struct {
		Name     string   `json:"name"`
		Dim      uint32   `json:"dim"`
		Segments []string `json:"segments,omitempty"`
		Sync     string   `json:"sync,omitempty"` // the longest that followers wait for a row, and how far it may be from theirs; none: the shard's interval
	}
	Output struct {
		Name   string  `json:"name"`
		Type   string  `json:"type"`
		Slices int     `json:"slices"`
		Shapes [][]int `json:"shapes"` // for a sample
	}
	Layer struct {
		Name       string   `json:"name"`
		Kind       string   `json:"kind"`
		Inputs     []string `json:"inputs"`
		Shapes     [][]int  `json:"shapes"` // for a sample
		Parameters int      `json:"parameters"`
	}
	Variable struct {
		Name  string   `json:"name"`
		Shape []uint32 `json:"shape"`
		Bytes int      `json:"bytes"`
	}
)

// Check compiles spec as every role does, and reports what it is.
func Check(spec *model.ModelSpec) (*Report, error) {
	if err := modelspec.Trainable(spec); err != nil {
		return nil, err
	}
	m, err := modelspec.Compile(spec)
	if err != nil {
		return nil, err
	}
	r := &Report{Model: spec.GetName(), Hash: modelspec.Hash(spec)}
	for _, f := range spec.GetFeatures() {
		field := f.GetField()
		if len(f.GetCross()) > 0 {
			field = strings.Join(f.GetCross(), " x ")
		}
		r.Features = append(r.Features, Feature{f.GetName(), field, f.GetSlot(), f.GetTable()})
	}
	for _, t := range spec.GetTables() {
		of := Table{Name: t.GetName(), Dim: t.GetDim()}
		for _, s := range t.GetSegments() {
			of.Segments = append(of.Segments, fmt.Sprintf("%s:%d", s.GetName(), s.GetDim()))
		}
		if s := t.GetSync(); s.GetIntervalMs() > 0 {
			of.Sync = (time.Duration(s.GetIntervalMs()) * time.Millisecond).String()
		}
		if s := t.GetSync(); s != nil && s.Tolerance != nil {
			of.Sync = strings.TrimSpace(fmt.Sprintf("%s within %v", of.Sync, s.GetTolerance()))
		}
		r.Tables = append(r.Tables, of)
	}
	for _, o := range m.Outputs {
		r.Outputs = append(r.Outputs, Output{o.Name, o.Type.String(), len(o.Slices), o.Shapes})
	}
	for _, l := range m.Layers {
		of := Layer{Name: l.Name, Kind: l.Kind, Inputs: l.Inputs, Parameters: l.Parameters}
		for _, s := range l.Shapes {
			of.Shapes = append(of.Shapes, s.Dims)
		}
		r.Layers = append(r.Layers, of)
	}
	for _, v := range m.Variables {
		r.Variables = append(r.Variables, Variable{v.Name, v.Shape, 4 * v.Size})
		r.Parameters += v.Size
	}
	for _, t := range m.Tasks {
		r.Tasks = append(r.Tasks, t.Name)
	}
	for _, a := range m.Added {
		r.Added = append(r.Added, a.Name)
	}
	return r, nil
}

// Print writes the report as tables.
func (r *Report) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "FEATURE\tFIELD\tSLOT\tTABLE\n")
	for _, f := range r.Features {
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\n", f.Name, f.Field, f.Slot, f.Table)
	}
	fmt.Fprintf(t, "\nTABLE\tDIM\tSEGMENTS\tSYNC\n")
	for _, of := range r.Tables {
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\n", of.Name, of.Dim, strings.Join(of.Segments, " "), of.Sync)
	}
	fmt.Fprintf(t, "\nOUTPUT\tTYPE\tSLICES\tSHAPE\n")
	for _, o := range r.Outputs {
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\n", o.Name, o.Type, o.Slices, shapes(o.Shapes))
	}
	fmt.Fprintf(t, "\nLAYER\tKIND\tINPUTS\tSHAPE\tPARAMETERS\n")
	for _, l := range r.Layers {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\n", l.Name, l.Kind, strings.Join(l.Inputs, " "), shapes(l.Shapes), l.Parameters)
	}
	fmt.Fprintf(t, "\nVARIABLE\tSHAPE\tBYTES\n")
	for _, v := range r.Variables {
		fmt.Fprintf(t, "%s\t%s\t%d\n", v.Name, numbers(v.Shape), v.Bytes)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if len(r.Added) > 0 {
		if _, err := fmt.Fprintf(w, "\nlayers add to the loss: %s\n", strings.Join(r.Added, ", ")); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "\nmodel %s is valid: tasks %s, %d parameters beside the rows, hash %s\n", r.Model, strings.Join(r.Tasks, " "), r.Parameters, r.Hash)
	return err
}

func shapes(all [][]int) string {
	words := make([]string, len(all))
	for i, s := range all {
		words[i] = "[n " + strings.TrimPrefix(numbers(s), "[")
	}
	words = slices.Compact(words)
	if len(all) > 1 && len(words) == 1 {
		return fmt.Sprintf("%d times %s", len(all), words[0])
	}
	return strings.Join(words, " ")
}

// numbers is like "[3 4]".
func numbers[T any](v []T) string { return fmt.Sprint(v) }
