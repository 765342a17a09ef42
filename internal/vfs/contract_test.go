package vfs_test

import (
	"path/filepath"
	"testing"

	"github.com/monolith-go/monolith/internal/testenv/oracle"
	"github.com/monolith-go/monolith/internal/vfs"
	"github.com/monolith-go/monolith/internal/vfs/vfstest"
)

func TestLocal(t *testing.T) { vfstest.Run(t, filepath.Join(t.TempDir(), "files")) }

// TestHDFS holds Apache Hadoop's file system to the same contract, and copies between the two.
func TestHDFS(t *testing.T) {
	server := oracle.HDFS(t)
	t.Cleanup(func() {
		if err := vfs.CloseIdle(); err != nil {
			t.Error(err)
		}
	})
	vfstest.Run(t, server.URL+"/contract")

	t.Run("there and back", func(t *testing.T) {
		here := t.TempDir()
		vfstest.Write(t, filepath.Join(here, "one"), "1")
		there, back := server.URL+"/there", filepath.Join(here, "back")
		if err := vfs.CopyTree(t.Context(), here, there, vfs.Copying{Workers: 2, Strict: true}); err != nil {
			t.Fatal(err)
		}
		if err := vfs.CopyTree(t.Context(), there, back, vfs.Copying{Strict: true}); err != nil {
			t.Fatal(err)
		}
		if text, err := vfs.ReadText(t.Context(), filepath.Join(back, "one"), 10); err != nil || string(text) != "1" {
			t.Fatalf("%q, %v", text, err)
		}
	})

	t.Run("a namenode that is gone", func(t *testing.T) {
		vfstest.Write(t, server.URL+"/text", "still here")
		server.Kill()
		if _, err := vfs.Stat(server.URL + "/text"); err == nil {
			t.Fatal("a namenode that is gone has answered")
		}
	})
}
