// Package heapfiles writes a process's heap profiles to files, as the environment says. The names
// and what they mean are those of gperftools' heap profiler; the profiles are Go's own, which
// go tool pprof reads.
package heapfiles

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"
)

// The variables that are read, beside those of the intervals.
const (
	envPath   = "HEAPPROFILE"
	envUsePID = "HEAPPROFILE_USE_PID" // set for child processes, whose files must be others
	envRatio  = "HEAP_PROFILE_SAMPLE_RATIO"
	envMmap   = "HEAP_PROFILE_MMAP"
)

// Config says when a profile is due, and where it goes.
type Config struct {
	prefix string // of the files' paths; "": no profiles are written

	grown     uint64        // bytes by which what lives must have passed its peak; 0: never for that
	allocated uint64        // bytes allocated since the last one; 0: never for that
	every     time.Duration // 0: never for that

	ratio float64 // of the samples that Go takes by itself
}

// Read reads the environment. Without HEAPPROFILE nothing else counts.
func Read(getenv func(string) string) (Config, error) {
	c := Config{ratio: 1}
	if getenv(envPath) == "" {
		return c, nil
	}
	var errs []error
	number := func(name string, otherwise uint64) uint64 {
		s := getenv(name)
		if s == "" {
			return otherwise
		}
		n, err := strconv.ParseUint(s, 10, 62)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s=%s is no whole number: mend it, or unset it for %d", name, s, otherwise))
		}
		return n
	}
	c.grown = number("HEAP_PROFILE_INUSE_INTERVAL", 100<<20)
	c.allocated = number("HEAP_PROFILE_ALLOCATION_INTERVAL", 1<<30)
	const most = uint64(time.Duration(1<<62) / time.Second)
	c.every = time.Duration(min(number("HEAP_PROFILE_TIME_INTERVAL", 0), most)) * time.Second
	if s := getenv(envRatio); s != "" {
		var err error
		if c.ratio, err = strconv.ParseFloat(s, 64); err != nil || !(c.ratio > 0 && c.ratio <= 1) {
			errs = append(errs, fmt.Errorf("%s=%s: give a share above 0 and up to 1, or unset it for 1", envRatio, s))
		}
	}
	if s := getenv(envMmap); s != "" {
		if _, err := strconv.ParseBool(s); err != nil {
			errs = append(errs, fmt.Errorf("%s=%s: say true or false; either changes nothing, Go's profile has no mapped files", envMmap, s))
		}
	}
	c.prefix = getenv(envPath)
	if info, err := os.Stat(c.prefix); err == nil && info.IsDir() {
		c.prefix = filepath.Join(c.prefix, "hprof")
		if index := getenv("MLP_ROLE_INDEX"); index != "" {
			c.prefix += "_" + filepath.Base(index)
		}
	}
	if getenv(envUsePID) != "" {
		c.prefix += "_" + strconv.Itoa(os.Getpid())
	}
	return c, errors.Join(errs...)
}

// rate is runtime.MemProfileRate for a share of the samples that Go takes by itself.
func (c Config) rate() int { return int(min(float64(runtime.MemProfileRate)/c.ratio, 1<<30)) }
