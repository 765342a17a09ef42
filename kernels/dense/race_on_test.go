//go:build race

package dense_test

const raceEnabled = true
