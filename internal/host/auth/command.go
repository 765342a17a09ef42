package auth

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/internal/process/flags"
)

// Command is monolith auth.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "auth",
		Short: "Make the keys of a deployment",
		Args: func(cmd *cobra.Command, args []string) error {
			return fmt.Errorf("%w: monolith auth init DIR", flags.ErrUsage)
		},
		RunE: func(*cobra.Command, []string) error { return nil },
	}
	cmd.AddCommand(initCommand())
	return cmd
}

func initCommand() *cobra.Command {
	var cfg Config
	cmd := &cobra.Command{
		Use:   "init DIR",
		Short: "Make an authority, a certificate and an NKey for each role, and a NATS server's configuration",
		Long: "Makes the folder DIR with an authority, for each role and for an operator and a reader a certificate and an NKey, and the\n" +
			"configuration of a nats-server under which only its owner may state a fact. The folder appears whole or not at all.",
		Example: "  monolith auth init keys --host 10.0.0.7 --host 10.0.0.8 --nats-listen 10.0.0.7:4222\n" +
			"  nats-server -c keys/nats.conf",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("%w: monolith auth init DIR", flags.ErrUsage)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg.Dir = args[0]
			if err := cfg.Validate(); err != nil {
				return fmt.Errorf("%w: %w", flags.ErrUsage, err)
			}
			if err := Init(cfg, time.Now()); err != nil {
				return err
			}
			in := func(name string) string { return filepath.Join(cfg.Dir, name) }
			w := cmd.OutOrStdout()
			fmt.Fprintf(w, "keys are in %s; keep ca.key where nothing serves\n  nats-server -c %s\n", cfg.Dir, in(ServerConf))
			for _, h := range Who {
				if h.Person() {
					continue
				}
				fmt.Fprintf(w, "  monolith %s --nats tls://%s --nats-ca %s --nats-cert %s --nats-key %s --nats-creds %s --nats-askers %s --tls-ca %[3]s --tls-cert %[4]s --tls-key %[5]s\n",
					h.Name, cfg.Listen, in(CAFile), in(h.Name+".pem"), in(h.Name+".key"), in(h.Name+".nk"), in(Askers))
			}
			return nil
		},
	}
	cmd.Flags().StringSliceVar(&cfg.Hosts, "host", nil, "`name` or address by which a machine is dialled, in every certificate; may be repeated")
	cmd.Flags().StringVar(&cfg.Listen, "nats-listen", "127.0.0.1:4222", "`host:port` on which the NATS server listens")
	cmd.Flags().DurationVar(&cfg.Valid, "valid", 365*24*time.Hour, "how long certificates are valid; the authority ten times as long")
	return cmd
}
