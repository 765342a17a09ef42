//go:build !amd64 || purego

package table

import "unsafe"

const chosen = plain

// What follows is never called: no table has another backend than plain.

func step1(*int64, int, *head, uintptr, *slot)                    {}
func step2AVX512(*slot, *uint32, int, *view, *uint32) int         { return 0 }
func step2AVX2(*slot, *uint32, int, *view, *uint32) int           { return 0 }
func step3AVX512(*slot, int, unsafe.Pointer, int, *uint32) uint64 { return 0 }
func step3AVX2(*slot, int, unsafe.Pointer, int, *uint32) uint64   { return 0 }

func adagradStageAVX512(*stage)                                      {}
func sgdStageAVX512(*stage)                                          {}
func fetchRows(*slot, int, int)                                      {}
func gatherAVX512(unsafe.Pointer, *uint32, int, int, unsafe.Pointer) {}
func step1Hashed(*int64, int, *head, uintptr, *slot)                 {}
func hashAVX512(*int64, int, *uint64)                                {}
func addOneAVX512(unsafe.Pointer, *uint32, int, int)                 {}
