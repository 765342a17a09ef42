package auth

import (
	"fmt"
	"path/filepath"
	"strings"
)

// serverConf is a nats-server's configuration: TLS for those who show a certificate.
func serverConf(dir, listen string) string {
	var b strings.Builder
	in := func(name string) string { return filepath.Join(dir, name) }
	fmt.Fprintf(&b, "# Made by monolith auth init: nats-server -c %s\n", in(ServerConf))
	fmt.Fprintf(&b, "listen: %q\n\n", listen)
	fmt.Fprintf(&b, "# Without sync_interval an acked fact can be lost with the machine.\njetstream { store_dir: %q, sync_interval: always }\n\n", in("jetstream"))
	fmt.Fprintf(&b, "tls {\n  cert_file: %q\n  key_file: %q\n  ca_file: %q\n  verify: true\n}\n\n", in(server+".pem"), in(server+".key"), in(CAFile))
	fmt.Fprintf(&b, "include \"./%s\"\n", UsersConf) // beside this file
	return b.String()
}

// usersConf is of each user's subjects those of its grant, for either server: it stands alone, since
// monolith nats is told everything else by flags.
func usersConf(users map[string]string) string {
	var b strings.Builder
	b.WriteString("# Made by monolith auth init: monolith nats --users, and included by " + ServerConf + "\n")
	b.WriteString("authorization {\n  users: [\n")
	for _, h := range Who {
		publish, subscribe := h.grant().Subjects()
		fmt.Fprintf(&b, "    { # %s\n      nkey: %s\n      permissions: {\n        publish: { allow: [%s] }\n        subscribe: { allow: [%s] }\n      }\n    }\n",
			h.Name, users[h.Name], quoted(publish), quoted(subscribe))
	}
	b.WriteString("  ]\n}\n")
	return b.String()
}

// askers are the public keys of all who may send commands: all but the reader.
func askers(users map[string]string) string {
	var b strings.Builder
	b.WriteString("# Made by monolith auth init: --nats-askers of the roles\n")
	for _, h := range Who {
		if h.grant().Acts {
			fmt.Fprintf(&b, "%s %s\n", h.Name, users[h.Name])
		}
	}
	return b.String()
}

func quoted(subjects []string) string {
	out := make([]string, len(subjects))
	for i, s := range subjects {
		out[i] = fmt.Sprintf("%q", s)
	}
	return strings.Join(out, ", ")
}
