//go:build !linux

package ckpt

func exchange(a, b string) error { return swap(a, b) }
