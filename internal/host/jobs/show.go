package jobs

import (
	"encoding/json"
	"io"
)

// show prints a report for people or for programs.
func show(w io.Writer, asJSON bool, report interface{ Print(io.Writer) error }) error {
	if asJSON {
		return json.NewEncoder(w).Encode(report)
	}
	return report.Print(w)
}
