package oracle

import (
	_ "embed"
	"os/exec"
	"path/filepath"
	"testing"
)

//go:embed curator/Recipes.java
var curatorRecipes string

// CuratorRecipes runs Apache Curator's mutex, leader latch, caches, persistent ephemeral
// node and transactions against the server at addr, and returns what it printed: a line
// "<recipe> ok" for each that holds. The program is compiled on the way.
func CuratorRecipes(t testing.TB, addr string) string {
	t.Helper()
	need(t, "Apache Curator", filepath.Join(Home(t), "curator", ".complete"))
	if _, err := exec.LookPath("javac"); err != nil {
		Missing(t, "a Java compiler (javac)", fix)
	}
	dir, jars := t.TempDir(), filepath.Join(Home(t), "curator", "*")
	source := filepath.Join(dir, "Recipes.java")
	write(t, source, curatorRecipes)
	if out, err := exec.CommandContext(t.Context(), "javac", "-cp", jars, "-d", dir, source).CombinedOutput(); err != nil {
		t.Fatalf("javac: %v\n%s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), "java", "-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
		"-cp", jars+string(filepath.ListSeparator)+dir, "Recipes", addr).CombinedOutput()
	if err != nil {
		t.Fatalf("Curator's recipes: %v\n%s", err, out)
	}
	return string(out)
}
