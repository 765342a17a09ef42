package vfs

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/colinmarc/hdfs/v2/hadoopconf"
)

func TestPaths(t *testing.T) {
	for _, tc := range []struct {
		path, clean, dir, base, joined string
		abs                            bool
	}{
		{"hdfs://nn:8020/a//b/../c/", "hdfs://nn:8020/a/c", "hdfs://nn:8020/a", "c", "hdfs://nn:8020/a/c/x/y", true},
		{"hdfs:///a/b", "hdfs:///a/b", "hdfs:///a", "b", "hdfs:///a/b/x/y", true},
		{"hdfs:/a/b", "hdfs:///a/b", "hdfs:///a", "b", "hdfs:///a/b/x/y", true},
		{"hdfs://nn", "hdfs://nn/", "hdfs://nn/", "/", "hdfs://nn/x/y", true},
		{"hdfs:/../a", "hdfs:///a", "hdfs:///", "a", "hdfs:///a/x/y", true},
		{"/a//b", "/a/b", "/a", "b", "/a/b/x/y", true},
		{"a/b", "a/b", "a", "b", "a/b/x/y", false},
		{"hdfs:a", "hdfs:a", ".", "hdfs:a", "hdfs:a/x/y", false},
		{"hdfsx:/a", "hdfsx:/a", "hdfsx:", "a", "hdfsx:/a/x/y", false},
	} {
		if Clean(tc.path) != tc.clean || Dir(tc.path) != tc.dir || Base(tc.path) != tc.base || Join(tc.path, "x", "y") != tc.joined || IsAbs(tc.path) != tc.abs {
			t.Errorf("%s: %q, %q, %q, %q, %v", tc.path, Clean(tc.path), Dir(tc.path), Base(tc.path), Join(tc.path, "x", "y"), IsAbs(tc.path))
		}
		if abs, err := Abs(tc.path); err != nil || !IsAbs(abs) || !strings.HasSuffix(abs, strings.TrimPrefix(tc.clean, "/")) {
			t.Errorf("Abs(%s) = %q, %v", tc.path, abs, err)
		}
	}
}

func TestNamenodes(t *testing.T) {
	ha := hadoopconf.HadoopConf{"fs.defaultFS": "hdfs://cluster/", "dfs.ha.namenodes.cluster": "a, b", "dfs.namenode.rpc-address.cluster.a": "h1:9000", "dfs.namenode.rpc-address.cluster.b": "h2:9000"}
	for _, tc := range []struct {
		conf      hadoopconf.HadoopConf
		authority string
		want      []string
	}{
		{nil, "nn:9000", []string{"nn:9000"}},
		{nil, "nn", []string{"nn:8020"}},
		{nil, "[::1]", []string{"[::1]:8020"}},
		{ha, "cluster", []string{"h1:9000", "h2:9000"}},
		{ha, "", []string{"h1:9000", "h2:9000"}},
		{ha, "other:1", []string{"other:1"}},
		{hadoopconf.HadoopConf{"fs.default.name": "hdfs://old:1"}, "", []string{"old:1"}},
		{hadoopconf.HadoopConf{"fs.defaultFS": "file:///"}, "", nil},
		{hadoopconf.HadoopConf{"dfs.ha.namenodes.cluster": "a"}, "cluster", nil},
		{nil, "", nil},
	} {
		got, err := namenodes(tc.conf, tc.authority)
		if !slices.Equal(got, tc.want) || (err != nil) != (tc.want == nil) || err != nil && !errors.Is(err, ErrConfiguration) {
			t.Errorf("%q in %v: %v, %v", tc.authority, tc.conf, got, err)
		}
	}
}

// A cluster that demands Kerberos is refused before anything is dialled.
func TestKerberosIsRefused(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HADOOP_CONF_DIR", dir)
	w, err := local{}.Create(Join(dir, "core-site.xml"))
	if err != nil {
		t.Fatal(err)
	}
	const conf = `<configuration><property><name>hadoop.security.authentication</name><value>kerberos</value></property></configuration>`
	if _, err := w.Write([]byte(conf)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Stat("hdfs://127.0.0.1:1/a"); !errors.Is(err, ErrConfiguration) || !strings.Contains(err.Error(), "Kerberos") {
		t.Error(err)
	}
}
