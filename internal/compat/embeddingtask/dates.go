package embeddingtask

import (
	"cmp"
	"errors"
	"path/filepath"
	"strings"
)

// Pattern is what training reads: a pattern of files, and where that is of a folder, which of its files are
// within the dates.
func (t *Task) Pattern() (pattern string, within func(path string) bool, err error) {
	if t.Train.FilePattern != "" {
		return t.Train.FilePattern, func(string) bool { return true }, nil
	}
	if t.Train.FileFolder == "" || t.Train.DateAndFileNameFormat == "" {
		return "", nil, errors.New("give train.file_pattern, or train.file_folder with train.date_and_file_name_format")
	}
	if t.Train.EndDate == "" {
		return "", nil, errors.New("train.file_folder needs train.end_date: the last day that is learnt")
	}
	folder := filepath.Clean(t.Train.FileFolder)
	return filepath.Join(folder, t.Train.DateAndFileNameFormat), func(path string) bool { return t.within(folder, path) }, nil
}

// firstDate counts where no first one is given.
const firstDate = "00000000"

// within says whether the eight characters behind the folder are a date within the task's.
func (t *Task) within(folder, path string) bool {
	rest := strings.TrimPrefix(strings.TrimPrefix(path, folder), string(filepath.Separator))
	if len(rest) < len(firstDate) {
		return false
	}
	date := rest[:len(firstDate)]
	return cmp.Or(t.Train.StartDate, firstDate) <= date && date <= t.Train.EndDate
}

// VocabularyPattern is where the vocabulary file of the last day is, "" for nowhere. It counts, above
// vocab_file_path, if it names exactly one file.
func (t *Task) VocabularyPattern() string {
	if t.Train.EndDate == "" || t.Train.VocabFileFolderPrefix == "" {
		return ""
	}
	return t.Train.VocabFileFolderPrefix + t.Train.EndDate + "/part*.csv"
}
