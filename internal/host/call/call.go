// Package call is how a person sends a role a command, signed with the key that the connection shows.
package call

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/monolith-go/monolith/internal/host/connect"
	"github.com/monolith-go/monolith/internal/process/flags"
)

// maxBody bounds what is read of standard input, as the bus does.
const maxBody = 1 << 20

// Command is monolith call.
func Command() *cobra.Command {
	var conn connect.Config
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "call COMMAND [BODY]",
		Short: "Send a role a command, signed with your key",
		Long: "Sends the command <service>.<endpoint> of the namespace with the body, JSON (-: standard input), and prints the answer.\n" +
			"A refusal is an error here. What comes of it in the log says who asked, and from which host.",
		Example: "  monolith call portal.load '{\"modelName\":\"movies\",\"modelDir\":\"/srv/exported_models\",\"job\":\"movies\"}'\n" +
			"  monolith call trainer.movies.checkpoint '{\"export\":true}' --timeout 1m --nats-creds keys/operator.nk",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return fmt.Errorf("%w: monolith call COMMAND [BODY]", flags.ErrUsage)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			body := []byte(nil)
			if len(args) == 2 {
				body = []byte(args[1])
			}
			if string(body) == "-" {
				var err error
				if body, err = io.ReadAll(io.LimitReader(cmd.InOrStdin(), maxBody+1)); err != nil {
					return fmt.Errorf("read the body: %w", err)
				}
			}
			conn.Look = true // it mends no stream
			b, err := conn.Dial(cmd.Context(), "monolith call")
			if err != nil {
				return err
			}
			defer func() { _ = b.Close() }() // nothing waits to be sent
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			reply, err := b.Commands().Call(ctx, conn.BZID, args[0], body)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n", reply)
			return err
		},
	}
	conn.Register(cmd.Flags())
	cmd.Flags().DurationVar(&timeout, "timeout", 10*time.Second, "time to wait for the answer")
	return cmd
}
