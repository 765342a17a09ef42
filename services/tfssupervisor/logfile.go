package tfssupervisor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// oldLogs is how many full log files are kept beside the one that is written: <name>.1 is
// the newest.
const oldLogs = 2

// logFile is appended to, over all lives of a server: what it said last before a crash is
// what somebody will look for. One goroutine writes.
type logFile struct {
	path string
	max  int64
	f    *os.File
	size int64
}

func openLog(path string, max int64) (*logFile, error) {
	l := &logFile{path: path, max: max}
	return l, l.open()
}

func (l *logFile) open() error {
	f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	l.f, l.size = f, info.Size()
	return nil
}

// Write never fails: the server's output must go on being read, or the server would stand
// still at its next line.
func (l *logFile) Write(p []byte) (int, error) {
	if l.size > 0 && l.size+int64(len(p)) > l.max {
		if err := l.rotate(); err != nil {
			return len(p), nil // of a full or vanished disk nobody can be told here
		}
	}
	n, _ := l.f.Write(p)
	l.size += int64(n)
	return len(p), nil
}

func (l *logFile) rotate() error {
	name := func(i int) string {
		if i == 0 {
			return l.path
		}
		return fmt.Sprintf("%s.%d", l.path, i)
	}
	_ = l.f.Close()
	for i := oldLogs; i > 0; i-- {
		if err := os.Rename(name(i-1), name(i)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return errors.Join(err, l.open())
		}
	}
	return l.open()
}

func (l *logFile) Close() error { return l.f.Close() }
