//go:build !race

package views_test

const raceDetector = false
