package agentconf

import (
	"strconv"
	"strings"
)

// psmPrefix stands before the name of a service in MLService, and of what it serves.
const psmPrefix = "data.tob.monolith_serving_"

// InMLService is an environment that says what pods of an MLService know under the names that agents know:
// shards, which are counted from 1 there and from 0 here, the data centre, the pod and the name of the service.
// What env says itself comes first.
func InMLService(env func(string) string) func(string) string {
	return func(name string) string {
		if own := env(name); own != "" {
			return own
		}
		switch name {
		case "SHARD_ID":
			if n, err := strconv.Atoi(env("MLP_SHARD_ID")); err == nil && n > 0 {
				return strconv.Itoa(n - 1)
			}
		case "MONOLITH_HOST_SHARD_N":
			return env("MLP_SHARD_NUM")
		case "TCE_INTERNAL_IDC":
			return env("MLP_IDC")
		case "MY_POD_NAME":
			return env("MLP_POD_NAME")
		case "MY_HOST_IP":
			return env("MLP_HOST_IP")
		case "TCE_PSM":
			kind := map[string]string{"ps": "ps-", "entry": "en-", "densenn": "de-"}[strings.ToLower(env("MLP_ROLE_NAME"))]
			if service := env("MLP_SERVICE_NAME"); kind != "" && service != "" {
				return psmPrefix + kind + service
			}
		}
		return ""
	}
}
