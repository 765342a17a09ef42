// Package vfs is files where they lie: on this machine, or in HDFS. A path says which: what begins
// with hdfs: is there, everything else is here.
//
//	hdfs://namenode:8020/a/b   that cluster
//	hdfs://nameservice/a/b     the namenodes of that name, in Hadoop's configuration
//	hdfs:///a/b, hdfs:/a/b     the cluster that Hadoop's configuration names
//
// Hadoop's configuration is in the folder that HADOOP_CONF_DIR names, or in $HADOOP_HOME/conf. The user is
// HADOOP_USER_NAME's, or the process's.
//
// What is written lasts when Close returns nil: here the bytes and the name are synced, there the
// datanodes have acknowledged the bytes and the namenode has logged the name. A datanode syncs its disk
// only where dfs.datanode.synconclose says so, and without it a power cut of all replicas at once may take
// what was written last. So HDFS suits what is made whole and then renamed, exports, checkpoints that are
// carried over, and what is read; a job's own log and live checkpoints lie on a disk here.
package vfs

import (
	"io"
	"io/fs"
)

// FileSystem is one kind of place for files. Its methods take paths as a user writes them. What is not
// there is [fs.ErrNotExist], what is there already [fs.ErrExist].
type FileSystem interface {
	Stat(path string) (fs.FileInfo, error)
	Open(path string) (File, error)
	// Create begins a file where none is, in a folder that is there.
	Create(path string) (io.WriteCloser, error)
	// ReadDir is what is in a folder, by name; of a file it is [syscall.ENOTDIR].
	ReadDir(path string) ([]fs.FileInfo, error)
	// MkdirAll makes a folder and those above it, as far as they are missing.
	MkdirAll(path string) error
	// Rename gives what is at from the name to, at once. A file there is replaced, a folder that
	// holds anything is not.
	Rename(from, to string) error
	// RemoveAll removes what is there with what is in it; nothing is there is no error.
	RemoveAll(path string) error
}

// File is one that is read.
type File interface {
	io.ReadSeekCloser
	Stat() (fs.FileInfo, error)
}

// For is the file system in which path lies.
func For(path string) (FileSystem, error) {
	if !Remote(path) {
		return local{}, nil
	}
	return clusters.of(path)
}

// Open opens a file for reading.
func Open(path string) (File, error) {
	at, err := For(path)
	if err != nil {
		return nil, err
	}
	return at.Open(path)
}

// Stat says what is at path.
func Stat(path string) (fs.FileInfo, error) {
	at, err := For(path)
	if err != nil {
		return nil, err
	}
	return at.Stat(path)
}

// ReadDir is what is in a folder, by name.
func ReadDir(path string) ([]fs.FileInfo, error) {
	at, err := For(path)
	if err != nil {
		return nil, err
	}
	return at.ReadDir(path)
}
