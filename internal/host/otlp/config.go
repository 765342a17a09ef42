// Package otlp sends a process's traces, metrics and logs to an OpenTelemetry collector over
// gRPC. Its settings have OpenTelemetry's own names, which the exporters read themselves:
// headers, certificates, compression and time-outs stand in the environment alone. A
// collector that hangs or is gone costs telemetry, which is counted, and nothing else.
package otlp

import (
	"cmp"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/monolith-go/monolith/internal/process/flags"
)

// signals are what is exported, as OpenTelemetry names it.
var signals = []string{"traces", "metrics", "logs"}

const envEndpoint = "OTEL_EXPORTER_OTLP_ENDPOINT"

// Config says where telemetry goes.
type Config struct {
	Endpoint string // URL of every signal whose own variable names none; "": those are not exported
}

// Register binds the flag.
func (c *Config) Register(fs *pflag.FlagSet) {
	fs.StringVar(&c.Endpoint, "otlp-endpoint", flags.Env(envEndpoint, ""),
		"`URL` of an OpenTelemetry collector (OTLP over gRPC) for traces, metrics and logs; http:// is plain text; empty: none ("+envEndpoint+", whose further variables count, too)")
}

// Env is what a child process is told, so that it exports likewise; the other variables it inherits.
func (c *Config) Env() []string {
	if c.Endpoint == "" {
		return nil
	}
	return []string{envEndpoint + "=" + c.Endpoint}
}

// Validate complains about what the exporters would pass over in silence.
func (c *Config) Validate() error {
	for _, signal := range c.signals() {
		if p := variable("OTEL_EXPORTER_OTLP", signal, "PROTOCOL"); p != "" && p != "grpc" {
			return fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL=%s: OTLP is spoken over gRPC here: say grpc and name the collector's gRPC port, 4317 mostly", p)
		}
		u, err := url.Parse(c.endpoint(signal))
		if err == nil && u.User != nil {
			return fmt.Errorf("the OTLP endpoint of %s holds credentials, which would be shown: take them out and say them in OTEL_EXPORTER_OTLP_HEADERS", signal)
		}
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return fmt.Errorf("the OTLP endpoint of %s is no http://host:port or https://host:port: mend --otlp-endpoint or %s", signal, envEndpoint)
		}
	}
	return nil
}

// variable is the signal's own value of an environment variable, or else that of all.
func variable(prefix, signal, name string) string {
	return cmp.Or(os.Getenv(prefix+"_"+strings.ToUpper(signal)+"_"+name), os.Getenv(prefix+"_"+name))
}

// endpoint is where a signal goes; "": nowhere.
func (c *Config) endpoint(signal string) string {
	return cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_"+strings.ToUpper(signal)+"_ENDPOINT"), c.Endpoint)
}

// signals are those that are exported.
func (c *Config) signals() (on []string) {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return nil
	}
	for _, signal := range signals {
		if c.endpoint(signal) != "" && os.Getenv("OTEL_"+strings.ToUpper(signal)+"_EXPORTER") != "none" {
			on = append(on, signal)
		}
	}
	return on
}
